"""Renders the health of the fleet, its workers, its working storage, and the board.

`arkline status` is one page of 80 columns; `arkline top` shows the board as tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from entrypoints.render import screen, views
from entrypoints.render.remedies import command, hints
from entrypoints.render.screen import Column
from operations.board import values
from operations.fleet import working_storage
from operations.fleet.health import Health
from operations.reasons import Reason
from pipeline.humanize import age, ago, brief, by_whom, counted, duration, in_time, kept_back, listed
from pipeline.outcome import REMEDIES, Service
from pipeline.working_storage.capacity import in_units

if TYPE_CHECKING:
    from datetime import datetime

    from rich.table import Table

    from operations.board.values import BoardSummary, Hour, LiveView, Stop
    from operations.fleet.fleet import Drained, Workers
    from operations.fleet.health import FleetHealth, HealthProblem, OutageView, Overview, RecordMemory, Space
    from operations.fleet.hosts import HostView
    from operations.fleet.plan import FleetPlan
    from operations.fleet.working_storage import CleanUp, Reservation, SpaceView
    from zkstate.fleet.holds import Hold
    from zkstate.fleet.notes import Correction, FixityStatus, RepeatedCheck

HOSTS = 5
"""Maximum number of sources, and of an outage's hosts, listed; a manifest may name thousands."""

NAMED_FOR = 86_400.0
"""Seconds for which a correction of a board is reported."""

_STYLES = {Health.OK: "green", Health.DEGRADED: "yellow", Health.STOPPED: "bold red"}


def show(view: Overview) -> None:
    for grid in tables(view):
        screen.show(grid)


def tables(view: Overview) -> Iterable[Table]:
    yield screen.facts_grid(_facts(view))
    if view.batches:
        yield _batches(view.batches, lambda row: row.profile, view.seconds_left)


def _batches(rows: Sequence[Any], collection: Callable[[Any], str], left: Mapping[str, float]) -> Table:
    """`left`: BID -> seconds; without any the column is left out."""
    remaining = Column[Any]("left", lambda row: _about(left.get(row.bid)), right=True)
    return screen.table_grid(
        rows,
        Column("batch", lambda row: row.bid),
        Column("state", lambda row: screen.state(row.status)),
        Column("for", lambda row: brief(age(row.since)), right=True),
        Column("jobs", lambda row: "" if row.total is None else str(row.total), right=True),
        *((remaining,) if left else ()),
        Column("collection", collection, wide=True),
        Column("deposit", lambda row: row.name, long=True),
    )


def _facts(view: Overview) -> Iterator[tuple[str, str | Text | None]]:
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
    for repeated in view.repeated_checks:
        yield "check", _repeated(repeated)
    if view.paused:
        yield "paused", Text(_stopped(view.paused), "yellow")
    for name, hold in view.held_collections.items():
        yield "on hold", Text(f"{name} {_stopped(hold)}", "yellow")


def _problems(health: FleetHealth) -> Iterator[tuple[str, str | Text | None]]:
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
        if not outage.remedies and (remedy := outage_remedy(outage)):
            yield "try", remedy


def outage_remedy(outage: OutageView) -> str:
    """What an operator does about the outage, as the end of a sentence."""
    if outage.remedies:
        return "; ".join(f"{one.action.doc.rstrip('.')} ({command(one)})" for one in outage.remedies)
    return REMEDIES.get(outage.service, "")


def outage_text(outage: OutageView) -> str:
    names, more = ", ".join(outage.hosts[:HOSTS]), len(outage.hosts) - HOSTS
    names += f" and {more} more" if more > 0 else ""
    where = ""
    if names:
        where = f" (met on {names})" if outage.everywhere else f" on {names} only"
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
    """`100,012 of 120,000 jobs, 1,001,685 znodes, 134 MB of data, heap 2.0 GB`, without unknown parts."""
    limit = f" of {memory.accepted_jobs:,}" if memory.accepted_jobs else ""
    known = (
        f"{memory.jobs:,}{limit} jobs",
        "" if memory.znodes is None else f"{memory.znodes:,} znodes",
        "" if memory.data_bytes is None else f"{in_units(memory.data_bytes)} of data",
        "" if memory.heap_bytes is None else f"heap {in_units(memory.heap_bytes)}",
    )
    return ", ".join(filter(None, known))


def _corrected(last: Correction | None) -> str:
    """The last correction while it is recent: pages may have shown wrong data before it."""
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


def _repeated(repeated: RepeatedCheck) -> str:
    problem = f"; cannot be checked now: {repeated.problem}" if repeated.problem else ""
    left = counted(repeated.outstanding, "stored version")
    return f"{repeated.check}: {left} to be checked again by {repeated.version}{problem}"


def _stopped(hold: Hold | Stop) -> str:
    return by_whom(hold.by, hold.reason, hold.at).strip()


FOLLOWS_LATER = "it will as soon as it runs and reaches ZooKeeper"
"""Said of a worker that has not yet followed its drain in the record."""


def workers(fleet: Workers) -> None:
    taking: dict[str, tuple[str, ...] | None] = {**dict.fromkeys(fleet.drained), **fleet.taking}
    if not fleet.workers:
        screen.note("no worker answers")
    for name, queues in sorted(taking.items()):
        screen.say(_worker(name, queues, fleet.drained.get(name)))


def drained(done: Drained) -> None:
    """Print the start or end of a drain."""
    if not done.changed:
        screen.note(f"{done.worker} {'is already' if done.drain else 'was not'} drained")
    screen.say(_worker(done.worker, done.queues if done.answers else None, done.drain))
    if not done.followed:
        screen.note(f"{done.worker} has not followed yet: {FOLLOWS_LATER}")


def _worker(name: str, queues: tuple[str, ...] | None, drain: Hold | None) -> str:
    """One line about a worker; without queues, the worker does not answer."""
    answers = "it does not answer" if queues is None else f"it consumes {', '.join(queues) or 'no queue'}"
    if drain is not None:
        taken = "it takes no new jobs" if queues == () else answers
        return f"{name} is drained{by_whom(drain.by, drain.reason, drain.at)}: {taken}."
    return f"{name}: {answers}." if queues is None else f"{name} {answers.removeprefix('it ')}."


def plan(done: FleetPlan) -> None:
    """Print the workers that the backlog needs, or why that is not known."""
    expected = f", {done.expected:,} of them expected" if done.expected else ""
    needed = "not known" if done.unknown is None else f"not known: {done.unknown.doc}"
    if done.workers_needed is not None and done.processes_needed is not None:
        needed = _workers(done.workers_needed, done.processes_needed)
    screen.facts(
        (
            ("backlog", f"{counted(done.jobs, 'job')}{expected}"),
            ("rate", "" if done.per_hour is None else f"{done.per_hour:,.0f} jobs an hour"),
            (
                "measured",
                f"{counted(done.measured, 'object')} of batches in progress, stored within the last hour",
            ),
            ("fleet now", _workers(done.workers, done.processes)),
            ("time left", "not known" if done.seconds_left is None else duration(done.seconds_left)),
            (f"within {duration(done.within)}", needed),
        )
    )
    if done.processes_needed is not None and done.processes_needed > done.in_flight:
        screen.note(f"only {done.in_flight:,} jobs are in progress at once: raise ARKLINE_IN_FLIGHT", "")


def _workers(workers: int, processes: int) -> str:
    return f"{counted(workers, 'worker')}, {counted(processes, 'process', 'processes')}"


def space(view: SpaceView) -> None:
    limit = None if view.total is None else view.total * view.threshold // 100
    reserving = sum(reservation.bytes > 0 for reservation in view.reservations)
    screen.facts(
        (
            (
                "folder",
                view.folder
                if limit is not None
                else f"{view.folder} (not on the machine that answered, or not used yet)",
            ),
            ("size", in_units(view.total) if view.total is not None else ""),
            ("used", in_units(view.used) if view.used is not None else ""),
            ("threshold", f"{view.threshold} %" + (f", {in_units(limit)}" if limit is not None else "")),
            ("reserved", f"{in_units(view.reserved)} by {counted(reserving, 'job')}"),
            ("waiting", counted(view.waiting, "job") if view.waiting else ""),
        )
    )
    if view.reservations:
        screen.table(
            view.reservations,
            Column("job", lambda reservation: reservation.jid),
            Column("reserved", lambda reservation: in_units(reservation.bytes), right=True),
            Column("on disk", lambda reservation: _on_disk(reservation.on_disk), right=True),
            Column("state", lambda reservation: screen.state(reservation.state or "no such job")),
            Column("for", _since, right=True),
            Column("failure", lambda reservation: screen.state(reservation.kind) if reservation.kind else ""),
            Column("gives it back", given_back, long=True),
            Column("batch", lambda reservation: reservation.bid, wide=True),
            Column("collection", lambda reservation: reservation.profile, wide=True),
        )


def given_back(part: Reservation) -> str:
    """When a job's part of working storage becomes free, if that is known."""
    moment = working_storage.GivesBack
    text = {
        moment.AT_ITS_END: "when it ends",
        moment.AFTER_REVIEW: "once an operator has approved or rejected it, and it ends",
        moment.WHEN_NEEDED: "when other jobs need it, or when it is deleted",
        moment.CLEAN_UP: "at the next clean-up",
        moment.NEVER: "not by itself: `arkline check --record` reports it",
    }[part.gives_back]
    if part.usual is None:
        return text
    return f"{text}; 95 % of jobs are {part.state} for less than {duration(part.usual)}"


def _since(part: Reservation) -> str:
    return "" if part.since is None else brief(age(part.since))


def _on_disk(count: int | None) -> str:
    return "" if count is None else in_units(count)


def cleaned(result: CleanUp) -> None:
    would = "would be " if result.dry_run else ""
    screen.say(f"{counted(result.jobs, 'completed job')} {would}cleaned up.")
    screen.say(f"{counted(len(result.batches), 'batch', 'batches')} {would}moved to the archive.")
    screen.say(f"{counted(len(result.folders), 'working directory', 'working directories')} {would}removed.")
    for folder in result.folders:
        screen.say(f"  {folder}")
    if result.busy:
        screen.note("beat is removing old batches now, so this command removed none")


def board_tables(live: LiveView) -> Iterable[Table]:
    """Tables of counts, stops, and failures by cause."""
    view = live.summary
    yield screen.facts_grid(_board_facts(live))
    yield from _states(view)
    if view.failures:
        yield screen.table_grid(
            view.failures,
            Column("failed", lambda group: str(group.count + group.batches), right=True),
            Column("kind", lambda group: screen.state(group.kind)),
            Column(
                "to act",
                lambda group: "nobody yet: resume later" if group.to_act == "wait" else f"the {group.to_act}",
            ),
            Column("last", lambda group: brief(age(group.last)), right=True),
            Column("id", lambda group: group.id),
            Column("cause", lambda group: group.template, long=True),
        )


def queue_tables(live: LiveView) -> Iterable[Table]:
    """Tables of counts, stops, and the latest batches."""
    yield screen.facts_grid(_board_facts(live))
    yield from _states(live.summary)
    if rows := live.batches.rows:
        left = {row.bid: row.seconds_left for row in rows if row.seconds_left is not None}
        yield _batches(rows, lambda row: row.collection, left)


def _about(seconds: float | None) -> str:
    return "" if seconds is None else f"about {brief(seconds)}"


def _states(view: BoardSummary) -> Iterable[Table]:
    states = [state for state, number in view.jobs.items() if number]
    if states:
        yield screen.table_grid(
            states,
            Column("state", lambda state: screen.state(state)),
            Column("jobs", lambda state: f"{view.jobs[state]:,}", right=True),
            Column("oldest", lambda state: brief(age(view.oldest[state])), right=True),
        )


def _board_facts(live: LiveView) -> Iterator[tuple[str, str | Text | None]]:
    view = live.summary
    freshness = view.freshness
    if live.problem:
        yield "board", Text(f"stale: as of {brief(age(freshness.as_of))} ago; {live.problem}", "bold red")
    elif freshness.stale:
        yield "board", Text(f"stale: {views.WHY_STALE}; as of {brief(age(freshness.as_of))} ago", "bold red")
    else:
        yield "board", Text("live" if freshness.following else "listed every 2 s", "green")
    if view.stops.pause is not None:
        yield "paused", Text(_kept_back(view.stops.pause), "yellow")
    for stop in view.stops.collections:
        yield "on hold", Text(f"{stop.collection} {_kept_back(stop)}", "yellow")
    yield "24 hours", _since_when(of_hours(view.hours), view.stored_as_of)
    if view.causes > len(view.failures):
        yield "causes", f"{view.causes} in all"


def of_hours(hours: Sequence[Hour]) -> str:
    """`1,200 versions stored, 3.2 GB, 4 jobs failed`, without what is not known of each hour."""
    stored, size, failed = (values.in_all(hours, figure) for figure in ("stored", "bytes", "failed"))
    parts = (
        None if stored is None else f"{counted(stored, 'version')} stored",
        None if size is None else in_units(size),
        None if failed is None else f"{counted(failed, 'job')} failed",
    )
    return ", ".join(part for part in parts if part)


def _since_when(hours: str, stored_as_of: datetime | None) -> str:
    return f"{hours} (stored: as of {brief(age(stored_as_of))} ago)" if hours and stored_as_of else hours


def _kept_back(stop: Stop) -> str:
    return f"{_stopped(stop)}; keeps back {kept_back(stop.jobs, stop.sized, stop.bytes, stop.batches)}"
