"""`arkline top` for people: the board as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from entrypoints.cli import console as screen
from entrypoints.cli.console import Column
from entrypoints.cli.render.humanize import age, brief, by_whom, counted
from operations.top import BoardSummary

if TYPE_CHECKING:
    from rich.table import Table

    from operations.board.values import Stop

_OWNERS = {"depositor": "the depositor", "operator": "an operator", "wait": "nobody yet: resume later"}


def tables(view: BoardSummary) -> Iterable[Table]:
    yield screen.facts_grid(_facts(view))
    states = [state for state, number in view.jobs.items() if number]
    if states:
        yield screen.table_grid(
            states,
            Column("state", lambda state: screen.state(state)),
            Column("jobs", lambda state: f"{view.jobs[state]:,}", right=True),
            Column("oldest", lambda state: brief(age(view.oldest[state])), right=True),
        )
    if view.failures:
        yield screen.table_grid(
            view.failures,
            Column("failed", lambda group: str(group.count + group.batches), right=True),
            Column("kind", lambda group: screen.state(group.kind)),
            Column("to act", lambda group: _OWNERS[group.owner]),
            Column("last", lambda group: brief(age(group.last)), right=True),
            Column("cause", lambda group: f"{group.template} {group.host}".strip(), long=True),
        )


def _facts(view: BoardSummary) -> Iterator[tuple[str, str | Text | None]]:
    freshness = view.freshness
    if freshness.stale:
        yield "board", Text(f"stale: ZooKeeper is away; as of {brief(age(freshness.as_of))} ago", "bold red")
    else:
        yield "board", Text("live" if freshness.following else "listed every 2 s", "green")
    if view.stops.pause is not None:
        yield "paused", Text(_stopped(view.stops.pause), "yellow")
    for stop in view.stops.collections:
        yield "on hold", Text(f"{stop.collection} {_stopped(stop)}", "yellow")
    if view.causes > len(view.failures):
        yield "causes", f"{view.causes} in all"


def _stopped(stop: Stop) -> str:
    keeps = f"; keeps back {counted(stop.jobs, 'job')}" if stop.jobs else ""
    return f"{by_whom(stop.by, stop.reason, stop.at).strip()}{keeps}"
