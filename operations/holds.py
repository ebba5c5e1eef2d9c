"""Stopping and letting go: collections on hold, the queue paused."""

from operations.bulk import Outcome, act_on_many
from operations.job_list import JobFilter, find
from operations.operator import Operator, feed
from operations.wording import by_whom
from pipeline.profiles.profile import Profiles
from pipeline.records import Record
from pipeline.states import BatchState, Event, JobState
from zkstate import holds, views
from zkstate.holds import Hold
from zkstate.session import Session


class Stopped(Record):
    """How a collection or the queue stands now; `note` says if it stood so before."""

    name: str
    stopped: bool
    hold: Hold | None = None
    note: str = ""
    released: Outcome | None = None


def hold_collection(operator: Operator, profiles: Profiles, name: str) -> Stopped:
    """Keep back what is submitted to a collection; jobs already taken up go on."""
    profiles.get(name)
    before = holds.collection_hold(operator.session, name)
    if before is None:
        holds.hold_collection(operator.session, name, Hold(by=operator.by, reason=operator.reason))
    return _stopped(f"collection {name}", before, holds.collection_hold(operator.session, name))


def release_collection(operator: Operator, name: str, *, everything: bool = False) -> Stopped:
    """End a hold; with `everything` also release the jobs and batches that it kept back."""
    was_held = holds.release_collection(operator.session, name)
    released = None
    if everything:
        names = [*held_batches(operator.session, name), *held_jobs(operator.session, name)]
        released = act_on_many(operator, Event.RELEASE, names)
    return Stopped(
        name=f"collection {name}",
        stopped=False,
        note="" if was_held else f"collection {name} was not on hold",
        released=released,
    )


def held_jobs(session: Session, name: str) -> list[str]:
    return [row.jid for row in find(session, JobFilter(state=JobState.HELD, profile=name))]


def held_batches(session: Session, name: str) -> list[str]:
    return [
        row.bid
        for row in views.readable(views.batch_rows(session, views.all_batches(session)))
        if row.status is BatchState.HELD and row.profile == name
    ]


def pause(operator: Operator) -> Stopped:
    """Take up no further job; what is at work goes on, and submissions are still accepted."""
    before = holds.paused(operator.session)
    if before is None:
        holds.pause(operator.session, Hold(by=operator.by, reason=operator.reason))
    return _stopped("queue", before, holds.paused(operator.session))


def unpause(operator: Operator) -> Stopped:
    was_paused = holds.unpause(operator.session)
    feed(operator)
    return Stopped(name="queue", stopped=False, note="" if was_paused else "the queue was not paused")


def _stopped(name: str, before: Hold | None, now: Hold | None) -> Stopped:
    note = ""
    if before is not None:
        note = f"{name} has been stopped already{by_whom(before.by, before.reason, before.at)}"
    return Stopped(name=name, stopped=now is not None, hold=now, note=note)
