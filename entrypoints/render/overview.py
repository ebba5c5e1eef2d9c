"""`arkline status` for people: one page of 80 columns about the health of the fleet and what waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from entrypoints.render import console as screen
from entrypoints.render.console import Column
from entrypoints.render.remedies import hints
from operations.fleet.health import FleetHealth, Health, HealthProblem, OutageView
from operations.fleet.hosts import HostView
from operations.fleet.overview import Overview, Space
from operations.reasons import Reason
from pipeline.humanize import age, ago, brief, by_whom, counted, duration, in_time, listed
from pipeline.outcome import REMEDIES, Service
from pipeline.working_storage.capacity import in_units

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from operations.fleet.health import RecordMemory
    from zkstate.fleet.holds import Hold
    from zkstate.fleet.notes import Correction, FixityStatus

HOSTS = 5
"""Sources that are named; a manifest may have thousands."""

NAMED_FOR = 86_400.0
"""Seconds for which a correction of a board is named."""

_STYLES = {Health.OK: "green", Health.DEGRADED: "yellow", Health.STOPPED: "bold red"}


def show(view: Overview) -> None:
    for grid in tables(view):
        screen.show(grid)


def tables(view: Overview) -> Iterable[Table]:
    yield screen.facts_grid(_facts(view))
    if view.batches:
        yield screen.table_grid(
            view.batches,
            Column("batch", lambda row: row.bid),
            Column("state", lambda row: screen.state(row.status)),
            Column("for", lambda row: brief(age(row.since)), right=True),
            Column("jobs", lambda row: "" if row.total is None else str(row.total), right=True),
            Column("collection", lambda row: row.profile, wide=True),
            Column("file", lambda row: row.name, long=True),
        )


def _facts(view: Overview) -> Iterator[tuple[str, str | Text | None]]:
    from rich.text import Text

    health = view.health
    yield "health", Text(health.status, _STYLES[health.status])
    yield from _problems(health)
    for queue in health.queues:
        busy = f"{queue.busy} of {queue.processes} processes busy"
        yield "workers", f"{queue.queue}: {counted(queue.workers, 'worker')}, {busy}" if queue.workers else ""
    yield "drained", ", ".join(health.drained)
    answers = "" if health.redis_answers else " (does not answer)"
    yield "servers", f"ZooKeeper {health.zookeeper}, Redis {health.redis}{answers}"
    if foreign := health.foreign_messages:
        yield (
            "foreign",
            f"{counted(foreign, 'message')} in Redis that arkline did not send: rejected by workers",
        )
    yield "beat", health.beat
    yield "jobs", listed(view.jobs) or "none in the queue"
    yield "waiting", listed(health.waiting)
    for host in health.hosts[:HOSTS]:
        left = in_time(host.waits_until) if host.waits_until else "soon"
        yield "source", f"{host.host} {standstill(host)}; asked again {left}. {kept_waiting(host)}"
    yield from _outages(health)
    for fault in health.faults:
        yield "retry", f"{counted(fault.jobs, 'job')} {in_time(fault.next_try)}: {fault.message}"
    yield "next try", in_time(health.next_try) if health.next_try else ""
    held = f"{view.held_batches} on hold, " if view.held_batches else ""
    yield "batches", f"{view.open_batches} unfinished, {held}{view.batches_in_all} in all"
    yield "record", _memory(view.record)
    yield "board", _corrected(view.correction)
    yield "space", space_text(view.space)
    yield "fixity", _fixity(view.fixity)
    if view.paused:
        yield "paused", Text(_stopped(view.paused), "yellow")
    for name, hold in view.held_collections.items():
        yield "on hold", Text(f"{name} {_stopped(hold)}", "yellow")


def _problems(health: FleetHealth) -> Iterator[tuple[str, str | Text | None]]:
    from rich.text import Text

    for problem in health.problems:
        yield "problem", Text(problem_text(problem), "red" if problem.stops_all else "yellow")
    if wrong := health.record_fault:
        since = f"for {duration(age(wrong.since))}: " if wrong.since else ""
        yield "record", f"{since}{wrong.message}"
    for hint in hints(health.remedies):
        yield "try", hint


def _outages(health: FleetHealth) -> Iterator[tuple[str, str]]:
    for outage in health.outages:
        if outage.service == Service.RECORD:
            continue  # shown above
        yield "outage", outage_text(outage)
        if remedy := REMEDIES.get(outage.service):
            yield "try", remedy


def outage_text(outage: OutageView) -> str:
    where = "" if outage.everywhere else f" on {', '.join(outage.hosts)} only"
    return (
        f"{outage.name}{where} for {duration(age(outage.since))}, next probe {in_time(outage.next_probe)}: "
        f"{outage.message}"
    )


def standstill(host: HostView) -> str:
    """`does not answer (3 requests in a row: timeout while connecting)`."""
    if host.unanswered:
        why = f": {host.cause}" if host.cause else ""
        return f"does not answer ({counted(host.unanswered, 'request')} in a row{why})"
    return f"asked clients to slow down ({host.cause or 'Retry-After'})"


def kept_waiting(host: HostView) -> str:
    if not host.jobs:
        return "Its jobs continue by themselves."
    wait = "waits for it and continues" if host.jobs == 1 else "wait for it and continue"
    return f"{counted(host.jobs, 'job or batch', 'jobs and batches')} {wait} without an action."


def problem_text(problem: HealthProblem) -> str:
    if problem.reason is Reason.JOBS_FAILED:
        return f"{counted(int(problem.waits_for), 'job')} failed"
    if problem.reason is Reason.WAITING_FOR_SPACE:
        return f"{waits(int(problem.waits_for))} for working storage"
    return problem.reason.of_fleet.format(problem.waits_for, message=problem.message)


def waits(jobs: int) -> str:
    return f"{counted(jobs, 'job')} {'waits' if jobs == 1 else 'wait'}"


def _memory(memory: RecordMemory) -> str:
    """`100,012 of 120,000 jobs, 1,001,685 znodes, 134 MB of data, heap 2.0 GB`, as far as it is known."""
    limit = f" of {memory.accepted_jobs:,}" if memory.accepted_jobs else ""
    known = (
        f"{memory.jobs:,}{limit} jobs",
        "" if memory.znodes is None else f"{memory.znodes:,} znodes",
        "" if memory.data_bytes is None else f"{in_units(memory.data_bytes)} of data",
        "" if memory.heap_bytes is None else f"heap {in_units(memory.heap_bytes)}",
    )
    return ", ".join(filter(None, known))


def _corrected(last: Correction | None) -> str:
    """While it matters: what somebody saw on a page at that time may have been wrong."""
    if last is None or age(last.at) > NAMED_FOR:
        return ""
    differences = counted(last.differences, "job or batch", "jobs and batches")
    return (
        f"the web process on {last.host} showed {differences} otherwise than the record until "
        f"{ago(last.at)}; it has read everything again"
    )


def space_text(space: Space) -> str:
    waiting = f"; {counted(space.waiting, 'job')} waiting" if space.waiting else ""
    if space.total is None or space.used is None:
        return f"{in_units(space.reserved)} reserved{waiting}" if space.reserved or waiting else ""
    limit = in_units(space.total * space.threshold // 100)
    return f"{in_units(space.used)} used and {in_units(space.reserved)} reserved of {limit}{waiting}"


def _fixity(stored: FixityStatus) -> str:
    if not stored.objects:
        return stored.problem
    oldest = f", the oldest read {duration(age(stored.oldest))} ago" if stored.oldest else ""
    problem = f"; cannot be checked now: {stored.problem}" if stored.problem else ""
    return f"{counted(stored.objects, 'object')}{oldest}{problem}"


def _stopped(hold: Hold) -> str:
    return by_whom(hold.by, hold.reason, hold.at).strip()
