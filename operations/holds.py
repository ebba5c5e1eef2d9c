"""Holds on collections and the pause of the queue, with the journal of both."""

from operations.bulk import Outcome, act_on_many
from operations.job_list import JobFilter, find
from operations.operator import Operator
from operations.site import Site
from operations.visibility import recorded_batch
from pipeline.principal import Principal, Role
from pipeline.profiles.snapshot import Renewal
from pipeline.records import BatchHistoryEntry, Record
from pipeline.states import BatchState, Event, JobState
from zkstate import batch_profile, holds, listings, views
from zkstate.holds import Hold
from zkstate.journal import JournalEntry
from zkstate.session import Session


class HoldResult(Record):
    """The state of a collection, or with `collection` None of the queue, after a verb."""

    collection: str | None = None
    hold: Hold | None = None
    """The current hold or pause."""
    changed: bool
    """False if it was so before the verb."""
    released: Outcome | None = None
    """The held batches and jobs that were released with the collection."""


class ActionHistory(Record):
    """Actions of operators on the fleet (`collection` is None) or on a collection, oldest first."""

    collection: str | None = None
    entries: tuple[JournalEntry, ...] = ()


class BatchHistory(Record):
    """The moves of a batch, oldest first, and who renewed its profile."""

    bid: str
    moves: tuple[BatchHistoryEntry, ...]
    renewals: tuple[Renewal, ...]


def hold_collection(operator: Operator, name: str) -> HoldResult:
    """Hold what is submitted to a collection; jobs that have started continue."""
    operator.require(f"hold collection {name}", name)
    operator.site.profiles.get(name)
    changed = holds.place(operator.session, operator.hold, name)
    hold = holds.collection_hold(operator.session, name)
    return HoldResult(collection=name, hold=hold, changed=changed)


def release_collection(operator: Operator, name: str, *, keep_held: bool = False) -> HoldResult:
    """End a hold and release the held batches and jobs of the collection, unless `keep_held`.

    After an interruption the same call releases the rest.
    """
    operator.require(f"release collection {name}", name)
    changed = holds.end(operator.session, operator.stamp, name)
    released = None
    if not keep_held:
        released = act_on_many(operator, Event.RELEASE, held_in(operator.session, name))
    return HoldResult(collection=name, changed=changed, released=released)


def held_in(session: Session, name: str) -> list[str]:
    """The held batches of a collection, then its held jobs."""
    held_batches = [
        row.bid
        for row in views.readable(views.batch_rows(session, listings.all_batches(session)))
        if row.status is BatchState.HELD and row.profile == name
    ]
    return held_batches + [row.jid for row in find(session, JobFilter(state=JobState.HELD, profile=name))]


def pause(operator: Operator) -> HoldResult:
    """Start no further job; running jobs continue, and submissions are still accepted."""
    operator.require("pause the queue")
    changed = holds.place(operator.session, operator.hold)
    return HoldResult(hold=holds.paused(operator.session), changed=changed)


def unpause(operator: Operator) -> HoldResult:
    operator.require("unpause the queue")
    changed = holds.end(operator.session, operator.stamp)
    operator.site.feed()
    return HoldResult(changed=changed)


def history(site: Site, principal: Principal, collection: str | None = None) -> ActionHistory:
    """The last actions on a collection or, without one, on the queue and the fleet."""
    subject = "the queue" if collection is None else f"collection {collection}"
    principal.require(Role.VIEWER, f"see the history of {subject}", collection)
    return ActionHistory(collection=collection, entries=holds.actions(site.session, collection))


def batch_history(site: Site, principal: Principal, bid: str) -> BatchHistory:
    """Of a batch in ZooKeeper; Missing once the batch has moved to the archive."""
    batch = recorded_batch(site, principal, bid)
    snapshot = batch_profile.snapshot(site.session, bid)
    given = () if snapshot is None else (*snapshot.earlier, snapshot)
    renewals = tuple(
        Renewal.model_validate(one.model_dump(include=set(Renewal.model_fields))) for one in given if one.by
    )
    return BatchHistory(bid=bid, moves=batch.history, renewals=renewals)
