"""Holds on collections and the pause of the queue, with the journal of both."""

from operations.known import require_collection
from operations.run import UNWATCHED, Run
from operations.site import Site
from operations.verbs.bulk import Outcome, act_on_many
from operations.verbs.verbs import VerbResult
from operations.visibility import recorded_batch
from pipeline.principal import Principal, Role
from pipeline.profiles.snapshot import Renewal
from pipeline.records import BatchHistoryEntry, Record
from pipeline.states import BatchState, Event, JobState
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.queue import listings, queue
from zkstate.record import batches
from zkstate.record.journal import JournalEntry, Stamp


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


def hold_collection(
    site: Site, principal: Principal, name: str, *, reason: str = "", dry_run: bool = False
) -> HoldResult:
    """Hold new submissions to a collection; jobs that have started continue."""
    principal.require(Role.OPERATOR, f"hold collection {name}", name)
    require_collection(site, name)
    changed = not dry_run and holds.place(site.session, Hold.of(principal, reason), name)
    hold = holds.collection_hold(site.session, name)
    changed = hold is None if dry_run else changed
    return HoldResult(collection=name, hold=hold, changed=changed)


def release_collection(  # noqa: PLR0913 - the options of one verb
    site: Site,
    principal: Principal,
    name: str,
    *,
    reason: str = "",
    keep_held: bool = False,
    dry_run: bool = False,
    run: Run = UNWATCHED,
) -> HoldResult:
    """End a hold and release the held batches and jobs of the collection, unless `keep_held`.

    After an interruption, calling it again releases the rest.
    """
    principal.require(Role.OPERATOR, f"release collection {name}", name)
    if dry_run:
        changed = holds.collection_hold(site.session, name) is not None
    else:
        changed = holds.end(site.session, Stamp.of(principal, reason), name)
    released = None
    if not keep_held:
        held = held_in(site.session, name)
        if dry_run:  # what would happen after the hold ends
            done = (VerbResult(id=one, was=JobState.HELD, now=JobState.PENDING) for one in held)
            released = Outcome(verb=Event.RELEASE, dry_run=True, done=tuple(done))
        else:
            released = act_on_many(site, principal, Event.RELEASE, held, reason=reason, run=run)
    return HoldResult(collection=name, changed=changed, released=released)


def held_in(session: Session, name: str) -> list[str]:
    """The held batches of a collection, then its held jobs."""
    held_batches = [
        row.bid
        for row in listings.readable(listings.batch_rows(session, listings.all_batches(session)))
        if row.status is BatchState.HELD and row.profile == name
    ]
    held_jobs = listings.readable(listings.job_rows(session, queue.queued(session, JobState.HELD)))
    return held_batches + [row.jid for row in held_jobs if row.profile == name]


def pause(site: Site, principal: Principal, *, reason: str = "") -> HoldResult:
    """Stop starting jobs; running jobs continue, and submissions are still accepted."""
    principal.require(Role.OPERATOR, "pause the queue")
    changed = holds.place(site.session, Hold.of(principal, reason))
    return HoldResult(hold=holds.paused(site.session), changed=changed)


def unpause(site: Site, principal: Principal, *, reason: str = "") -> HoldResult:
    principal.require(Role.OPERATOR, "unpause the queue")
    changed = holds.end(site.session, Stamp.of(principal, reason))
    site.feed()
    return HoldResult(changed=changed)


def history(site: Site, principal: Principal, collection: str | None = None) -> ActionHistory:
    """The latest actions on a collection or, without one, on the queue and the fleet."""
    subject = "the queue" if collection is None else f"collection {collection}"
    principal.require(Role.VIEWER, f"see the history of {subject}", collection)
    return ActionHistory(collection=collection, entries=holds.actions(site.session, collection))


def batch_history(site: Site, principal: Principal, bid: str) -> BatchHistory:
    """The history of a batch in ZooKeeper; Missing once the batch is in the archive."""
    batch = recorded_batch(site, principal, bid)
    snapshot = batches.profile_snapshot(site.session, bid)
    given = () if snapshot is None else (*snapshot.earlier, snapshot)
    renewals = tuple(
        Renewal.model_validate(one.model_dump(include=set(Renewal.model_fields))) for one in given if one.by
    )
    return BatchHistory(bid=bid, moves=batch.history, renewals=renewals)
