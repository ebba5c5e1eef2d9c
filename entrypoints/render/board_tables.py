"""`arkline top` for people: the board as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from entrypoints.render import screen
from entrypoints.render.screen import Column
from operations.board.values import BoardSummary, LiveView
from pipeline.humanize import age, brief, by_whom, kept_back

if TYPE_CHECKING:
    from rich.table import Table

    from operations.board.values import Stop

_OWNERS = {"depositor": "the depositor", "operator": "an operator", "wait": "nobody yet: resume later"}


def tables(live: LiveView) -> Iterable[Table]:
    """Counts, stops and failures by cause."""
    view = live.summary
    yield screen.facts_grid(_facts(live))
    yield from _states(view)
    if view.failures:
        yield screen.table_grid(
            view.failures,
            Column("failed", lambda group: str(group.count + group.batches), right=True),
            Column("kind", lambda group: screen.state(group.kind)),
            Column("to act", lambda group: _OWNERS[group.owner]),
            Column("last", lambda group: brief(age(group.last)), right=True),
            Column("id", lambda group: group.id),
            Column("cause", lambda group: f"{group.template} {group.host}".strip(), long=True),
        )


def queue_tables(live: LiveView) -> Iterable[Table]:
    """Counts, stops and the latest batches."""
    yield screen.facts_grid(_facts(live))
    yield from _states(live.summary)
    if live.batches.rows:
        yield screen.table_grid(
            live.batches.rows,
            Column("batch", lambda row: row.bid),
            Column("state", lambda row: screen.state(row.status)),
            Column("for", lambda row: brief(age(row.since)), right=True),
            Column("jobs", lambda row: "" if row.total is None else str(row.total), right=True),
            Column("collection", lambda row: row.collection, wide=True),
            Column("file", lambda row: row.name, long=True),
        )


def _states(view: BoardSummary) -> Iterable[Table]:
    states = [state for state, number in view.jobs.items() if number]
    if states:
        yield screen.table_grid(
            states,
            Column("state", lambda state: screen.state(state)),
            Column("jobs", lambda state: f"{view.jobs[state]:,}", right=True),
            Column("oldest", lambda state: brief(age(view.oldest[state])), right=True),
        )


def _facts(live: LiveView) -> Iterator[tuple[str, str | Text | None]]:
    view = live.summary
    freshness = view.freshness
    if live.problem:
        yield "board", Text(f"stale: as of {brief(age(freshness.as_of))} ago; {live.problem}", "bold red")
    elif freshness.stale:
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
    keeps = f"; keeps back {kept_back(stop.jobs, stop.sized, stop.bytes, stop.batches)}"
    return f"{by_whom(stop.by, stop.reason, stop.at).strip()}{keeps}"
