"""Generates the page docs/states.md from the tables: `python -m tools.states_page`."""

from collections.abc import Iterable

from pipeline.machine import ANY, Event, FailureKind, Machine, Raiser, Room, S
from pipeline.states import BATCH, JOB
from tools.checkout import PROJECT


def markdown() -> str:
    lines = [
        "# States",
        "",
        "Generated from `pipeline/states.py` by `python -m tools.states_page`.",
        "*If named* marks the rows of `arkline resume JID --from STATE`; the diagram leaves them out.",
        *_section("Jobs", JOB),
        *_section("Batches", BATCH),
    ]
    lines += ["", "## Events", ""]
    lines += [f"* **{event}**: {event.doc}" for event in Event]
    lines += ["", "## Working storage of a failed job", ""]
    lines += [f"* **{room}**: {room.doc}" for room in Room]
    lines += ["", "## Kinds of failure", ""]
    lines += [f"* **{kind}**: {kind.doc}" for kind in FailureKind]
    return "\n".join(lines) + "\n"


def _section(title: str, machine: Machine[S]) -> Iterable[str]:
    yield from ("", f"## {title}", "", *_mermaid(machine), "", *_rows(machine), "")
    yield from ("| state | meaning | task | queue |", "|---|---|---|---|")
    for state in machine.states():
        task = machine.facts[state].task
        name, queue = (f"`{task.name}`", task.queue) if task else ("", "")
        yield f"| {state} | {state.doc} | {name} | {queue} |"


def _mermaid(machine: Machine[S]) -> Iterable[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {_node(machine.initial)}"
    arrows = ((_node(row.source), _node(row.target), row.event) for row in machine.table if not row.named)
    for source, target, event in dict.fromkeys(arrows):
        yield f"    {source} --> {target} : {event}"
    yield "```"


def _node(state: str) -> str:
    return state.replace("-", "_")


def _rows(machine: Machine[S]) -> Iterable[str]:
    """Rows that differ only in the last success are one row of the page."""
    yield f"| {machine.name} in | event | goes to | if the last success was | raised by |"
    yield "|---|---|---|---|---|"
    rows: dict[tuple[str, str, str, str, str], list[str]] = {}
    for row in machine.table:
        further = ""
        if row.refused_after:
            further += f"; refused after a failure of {row.refused_after}"
        if row.room:
            further += f"; working storage {' or '.join(room for room in Room if room in row.room)}"
        if row.named:
            further += "; if named"
        by = ", ".join(raiser for raiser in Raiser if raiser in row.by)
        after = "" if row.after is ANY else str(row.after or "none")
        rows.setdefault((row.source, row.event, row.target, further, by), []).append(after)
    for (source, event, target, further, by), successes in rows.items():
        yield f"| {source} | {event} | {target} | {' or '.join(successes)}{further} | {by} |"


if __name__ == "__main__":
    (PROJECT / "docs" / "states.md").write_text(markdown())
