"""The answer to "why is it here?" on a page: a paragraph, and buttons for what helps."""

from __future__ import annotations

from typing import Any

from entrypoints.cli.render import why as words
from entrypoints.web.context import WebContext
from entrypoints.web.pages import acts
from entrypoints.web.pages.whole import WholeFleet
from operations.facts import Explanation, Reason
from operations.fleet import Answers, Fleet
from operations.why import why_loaded
from pipeline.inventory.archive import ArchivedBatch, ArchivedJob
from pipeline.principal import Principal
from pipeline.records import Batch, Job

_DONE = frozenset({Reason.COMPLETED, Reason.ARCHIVED})
_FAILED = frozenset(
    {Reason.FAILED_CONTENT, Reason.FAILED_SYSTEM, Reason.FAILED_TRANSIENT, Reason.JOBS_FAILED}
)


def explain(
    web: WebContext,
    whole: WholeFleet,
    caller: Principal,
    record: Job | Batch | ArchivedJob | ArchivedBatch,
) -> Explanation:
    """Why the job or the batch is where it is, without others' jobs; no page asks workers or Redis."""
    now = whole.get()
    fleet = now.fleet if now else Fleet(web.site, Answers(None, None))
    return why_loaded(fleet, caller, record)


def explained(facts: Explanation, version: int | None) -> dict[str, Any]:
    """The values of `explanation.html`; `version`: of the status of the explained job or batch."""
    alone = facts.model_copy(update={"remedies": ()})
    return {
        "paragraph": words.paragraph(alone),
        "remedies": () if facts.moves_itself else acts.of_remedies(facts.remedies, version),
        "afterwards": acts.of_remedies(facts.afterwards),
        "tone": _tone(facts),
    }


def _tone(facts: Explanation) -> str:
    if facts.reason in _DONE:
        return "good"
    if facts.reason in _FAILED:
        return "bad"
    return "" if facts.moves_itself else "warn"
