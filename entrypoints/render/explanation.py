"""The text of `arkline why`: a paragraph made from the facts, and the commands that help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from entrypoints.render.remedies import command, hints
from operations.explanation import Explanation, Obstacle, sentence
from operations.reasons import Reason
from pipeline.humanize import age, duration
from pipeline.states import JOB, JobState, phrase


def text(facts: Explanation) -> str:
    """The paragraph, then one line for each command that helps."""
    return "\n".join((paragraph(facts), *(f"  {hint}" for hint in _advice(facts))))


def document(facts: Explanation) -> dict[str, Any]:
    """The facts with the paragraph and the commands, for --json."""
    commands = [spelled for remedy in facts.remedies if (spelled := command(remedy))]
    return {**facts.model_dump(mode="json"), "text": paragraph(facts), "commands": commands}


def paragraph(facts: Explanation) -> str:
    sentences = (
        _opening(facts),
        sentence(facts),
        _example(facts.first) if facts.first else "",
        *map(_obstacle, facts.obstacles),
    )
    return " ".join(filter(None, (*sentences, _closing(facts))))


def _opening(facts: Explanation) -> str:
    if facts.since is None:
        return f"The record of {facts.id} is damaged."
    about = ", ".join(
        filter(
            None,
            (
                facts.name,
                f"batch {facts.bid}" if facts.bid else "",
                f"collection {facts.profile}" if facts.kind == "batch" else "",
            ),
        )
    )
    about = f" ({about})" if about else ""
    spent = duration(age(facts.since))
    if facts.state in JOB.where(lambda row: row.ended):
        was = "was " if facts.state == JobState.DELETED else ""
        return f"{facts.id}{about} {was}{facts.state} {spent} ago."
    return f"{facts.id}{about} has been {phrase(facts.state)} for {spent}."


def _closing(facts: Explanation) -> str:
    if facts.reason is Reason.SERVICE_DOWN and not facts.remedies:
        return ""  # the sentence before it includes the operator's part
    if facts.moves_itself:
        return "No action is needed now." if facts.afterwards else "No action is needed."
    if facts.remedies:
        return "What helps:"
    return ""


def _advice(facts: Explanation) -> Iterator[str]:
    if not facts.moves_itself:
        yield from hints(facts.remedies)
    for hint in hints(facts.afterwards):
        yield f"afterwards {hint}"


def _obstacle(obstacle: Obstacle) -> str:
    return obstacle.reason.also.format(obstacle.waits_for, message=obstacle.message)


def _example(facts: Explanation) -> str:
    return f"One of them: {paragraph(facts.model_copy(update={'remedies': (), 'moves_itself': False}))}"
