"""`arkline status` for people: one page of 80 columns about the health of the fleet and what waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from entrypoints.cli import console as screen
from entrypoints.cli.console import Column
from entrypoints.cli.render.humanize import age, ago, brief, counted, in_time, listed
from entrypoints.cli.render.remedies import hints
from operations.facts import Reason
from operations.health import Health, Problem
from operations.overview import Overview, Space
from pipeline.working_storage.capacity import in_units

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from zkstate.holds import Hold

_STYLES = {Health.OK: "green", Health.DEGRADED: "yellow", Health.STOPPED: "bold red"}

_PROBLEMS: dict[Reason, str] = {
    Reason.BROKER_UNREACHABLE: "Redis at {} does not answer",
    Reason.NO_WORKER: "no worker consumes queue '{}'",
    Reason.NO_BEAT: "no beat is running: nothing is scheduled or retried",
    Reason.QUEUE_PAUSED: "the queue is paused: no new job starts",
    Reason.BETWEEN_TRIES: "{} does not work: jobs wait for a retry",
}


def show(view: Overview) -> None:
    for grid in tables(view):
        screen.show(grid)


def tables(view: Overview) -> Iterable[Table]:
    yield screen.facts_grid(_facts(view))
    if view.batches:
        columns = (
            Column("batch"),
            Column("state"),
            Column("for", right=True),
            Column("jobs", right=True),
            Column("collection", wide=True),
            Column("file", long=True),
        )
        rows = (
            (
                row.bid,
                screen.state(row.status),
                brief(age(row.since)),
                "" if row.total is None else str(row.total),
                row.profile,
                row.name,
            )
            for row in view.batches
        )
        yield screen.table_grid(columns, rows)


def _facts(view: Overview) -> Iterator[tuple[str, str | Text | None]]:
    from rich.text import Text

    health = view.health
    yield "health", Text(health.status, _STYLES[health.status])
    for problem in health.problems:
        yield "problem", Text(problem_text(problem), "red" if problem.stops_all else "yellow")
    for hint in hints(health.remedies):
        yield "try", hint
    for queue in health.queues:
        busy = f"{queue.busy} of {queue.processes} processes busy"
        yield "workers", f"{queue.queue}: {counted(queue.workers, 'worker')}, {busy}" if queue.workers else ""
    yield "drained", ", ".join(health.drained)
    answers = "" if health.redis_answers else " (does not answer)"
    yield "servers", f"ZooKeeper {health.zookeeper}, Redis {health.redis}{answers}"
    yield "beat", health.beat
    yield "jobs", listed(view.jobs) or "none in the queue"
    yield "waiting", listed(health.waiting)
    for fault in health.faults:
        yield "retry", f"{counted(fault.jobs, 'job')} {in_time(fault.next_try)}: {fault.message}"
    yield "next try", in_time(health.next_try) if health.next_try else ""
    yield "batches", f"{view.open_batches} unfinished, {view.batches_in_all} in all"
    yield "space", _space(view.space)
    if view.paused:
        yield "paused", Text(_hold(view.paused), "yellow")
    for name, hold in view.held_collections.items():
        yield "on hold", Text(f"{name} {_hold(hold)}", "yellow")


def problem_text(problem: Problem) -> str:
    return _PROBLEMS[problem.reason].format(problem.waits_for)


def _space(space: Space) -> str:
    waiting = f"; {counted(space.waiting, 'job')} waiting" if space.waiting else ""
    if space.total is None or space.used is None:
        return f"{in_units(space.reserved)} reserved{waiting}" if space.reserved or waiting else ""
    limit = in_units(space.total * space.threshold // 100)
    return f"{in_units(space.used)} used and {in_units(space.reserved)} reserved of {limit}{waiting}"


def _hold(hold: Hold) -> str:
    by = f"by {hold.by} " if hold.by else ""
    return f"{by}{ago(hold.at)}" + (f" ({hold.reason})" if hold.reason else "")
