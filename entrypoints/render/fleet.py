"""Shows the workers, working storage with its reservations, and the result of a clean-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrypoints.render import console as screen
from entrypoints.render.console import Column
from operations.fleet.working_storage import CleanUp, GivesBack, Reservation, SpaceView
from pipeline.humanize import age, brief, by_whom, counted, duration
from pipeline.working_storage.capacity import in_units

if TYPE_CHECKING:
    from operations.fleet.fleet import Drained, Workers
    from zkstate.fleet.holds import Hold

_GIVEN_BACK = {
    GivesBack.AT_ITS_END: "when it ends",
    GivesBack.WHEN_NEEDED: "when other jobs need it, or when it is deleted",
    GivesBack.CLEAN_UP: "at the next clean-up",
    GivesBack.NEVER: "not by itself: `arkline check --record` reports it",
}


FOLLOWS_LATER = "it will as soon as it runs and reaches ZooKeeper"
"""Of a worker that does not yet do what the record says of its drain."""


def workers(fleet: Workers) -> None:
    taking: dict[str, tuple[str, ...] | None] = {**dict.fromkeys(fleet.drained), **fleet.taking}
    if not fleet.workers:
        screen.note("no worker answers")
    for name, queues in sorted(taking.items()):
        screen.say(_worker(name, queues, fleet.drained.get(name)))


def drained(done: Drained) -> None:
    """A drain, or the end of one."""
    if not done.changed:
        screen.note(f"{done.worker} {'is already' if done.drain else 'was not'} drained")
    screen.say(_worker(done.worker, done.queues if done.answers else None, done.drain))
    if not done.followed:
        screen.note(f"{done.worker} has not followed yet: {FOLLOWS_LATER}")


def _worker(name: str, queues: tuple[str, ...] | None, drain: Hold | None) -> str:
    """One line; without queues the worker does not answer."""
    answers = "it does not answer" if queues is None else f"it consumes {', '.join(queues) or 'no queue'}"
    if drain is not None:
        taken = "it takes no new jobs" if queues == () else answers
        return f"{name} is drained{by_whom(drain.by, drain.reason, drain.at)}: {taken}."
    return f"{name}: {answers}." if queues is None else f"{name} {answers.removeprefix('it ')}."


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
    """When a job's part is free again, as far as that can be said."""
    text = _GIVEN_BACK[part.gives_back]
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
