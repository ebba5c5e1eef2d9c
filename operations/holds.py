"""Holds on collections and the pause of the queue, with the journal of both."""

from operations.bulk import Outcome, act_on_many
from operations.job_list import JobFilter, find
from operations.operator import Operator, feed
from operations.wording import by_whom
from pipeline.principal import Principal, Role
from pipeline.profiles.profile import Profiles
from pipeline.records import Record
from pipeline.states import BatchState, Event, JobState
from zkstate import holds, listings, views
from zkstate.holds import Hold
from zkstate.journal import JournalEntry
from zkstate.session import Session


class Stopped(Record):
    """Whether a collection or the queue is stopped now; `note` says if it was so before."""

    name: str
    stopped: bool
    hold: Hold | None = None
    note: str = ""
    released: Outcome | None = None


class ActionHistory(Record):
    """What operators did to the queue (`collection` is None) or to a collection, oldest first."""

    collection: str | None = None
    entries: tuple[JournalEntry, ...] = ()


def hold_collection(operator: Operator, profiles: Profiles, name: str) -> Stopped:
    """Hold what is submitted to a collection; jobs that have started continue."""
    profiles.get(name)
    operator.require(f"hold collection {name}", name)
    placed = holds.hold_collection(operator.session, name, _hold(operator))
    return _stopped(f"collection {name}", holds.collection_hold(operator.session, name), is_new=placed)


def release_collection(operator: Operator, name: str, *, keep_held: bool = False) -> Stopped:
    """End a hold and release the held batches and jobs of the collection, unless `keep_held`.

    After an interruption the same call releases the rest.
    """
    operator.require(f"release collection {name}", name)
    was_held = holds.release_collection(operator.session, name, operator.stamp)
    released = None
    if not keep_held:
        names = held_in(operator.session, name)
        released = act_on_many(operator, Event.RELEASE, names)
    return Stopped(
        name=f"collection {name}",
        stopped=False,
        note="" if was_held else f"collection {name} was not on hold",
        released=released,
    )


def held_in(session: Session, name: str) -> list[str]:
    """The held batches of a collection, then its held jobs."""
    held_batches = [
        row.bid
        for row in views.readable(views.batch_rows(session, listings.all_batches(session)))
        if row.status is BatchState.HELD and row.profile == name
    ]
    return held_batches + [row.jid for row in find(session, JobFilter(state=JobState.HELD, profile=name))]


def pause(operator: Operator) -> Stopped:
    """Start no further job; running jobs continue, and submissions are still accepted."""
    operator.require("pause the queue")
    placed = holds.pause(operator.session, _hold(operator))
    return _stopped("queue", holds.paused(operator.session), is_new=placed)


def unpause(operator: Operator) -> Stopped:
    operator.require("unpause the queue")
    was_paused = holds.unpause(operator.session, operator.stamp)
    feed(operator)
    return Stopped(name="queue", stopped=False, note="" if was_paused else "the queue was not paused")


def history(session: Session, principal: Principal, collection: str | None = None) -> ActionHistory:
    """The last actions on a collection or, without one, on the queue."""
    if collection is None:
        principal.require(Role.VIEWER, "see the history of the queue")
        return ActionHistory(entries=holds.queue_actions(session))
    principal.require(Role.VIEWER, f"see the history of collection {collection}", collection)
    return ActionHistory(collection=collection, entries=holds.collection_actions(session, collection))


def _hold(operator: Operator) -> Hold:
    return Hold.model_validate(operator.stamp.model_dump())


def _stopped(name: str, hold: Hold | None, *, is_new: bool) -> Stopped:
    note = ""
    if hold is not None and not is_new:
        note = f"{name} was stopped before{by_whom(hold.by, hold.reason, hold.at)}"
    return Stopped(name=name, stopped=hold is not None, hold=hold, note=note)
