"""Subscriptions to events, the events that wait for them, and how their deliveries went.

An event is entered for each subscription that wants it: that of a deposit in the transaction which moves the
deposit, so that neither is there without the other. Without subscriptions nothing is asked and nothing is
entered: a session reads them again only when they have changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pipeline.errors import UsageRefused
from pipeline.notify.subscription import TEXT, TITLE, Delivery, EventKind, NotableEvent, Subscription
from pipeline.records import Batch, BatchStatus, Job, Submission
from pipeline.states import BatchState, JobState
from zkstate import codec, paths
from zkstate.connection import remembered
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Delete, Put, Role, commit
from zkstate.errors import Contended, Corrupt
from zkstate.record.node import Node, log_damage, read_each

MOST = 500
"""Maximum subscriptions, with those that ended a short time ago."""

AT_ONCE = 500
"""Events that are removed in one transaction."""

CHARACTERS = 60_000
"""Maximum characters of the titles and texts that one transaction enters: there may be MOST of them, and
TRANSACTION_LIMIT bounds it with the report of the deposit."""


def _deliveries(subscription_id: str) -> Node[Delivery]:
    return Node(paths.delivery(subscription_id), Delivery, lambda _: Delivery())


def known(session: Session) -> list[Subscription]:
    """The readable subscriptions; nothing is sent to ZooKeeper unless one was changed since."""
    names = paths.owned(paths.SUBSCRIPTIONS, remembered.children(session, paths.SUBSCRIPTIONS))
    read = (
        remembered.read(session, path, partial(_decoded, path)) for path in map(paths.subscription, names)
    )
    return [node.value for node in read if node.value is not None]


def _decoded(path: str, data: bytes) -> Subscription | None:
    try:
        return codec.decode(Subscription, data, path)
    except Corrupt as damage:
        log_damage(damage)
        return None


def creating(session: Session, event: NotableEvent) -> tuple[Create, ...]:
    """Operations that enter the event for those who want it and do not have it.

    Contended if a subscription was removed, or another process entered the event.
    """
    chosen = [one.id for one in known(session) if one.wants(event)]
    if not chosen:
        return ()
    title = event.title[: min(TITLE, CHARACTERS // len(chosen))]
    text = event.text[: min(TEXT, CHARACTERS // len(chosen) - len(title))]
    cut = event.model_copy(update={"title": title, "text": text})
    entered = [_entered(subscription_id, cut) for subscription_id in chosen]
    stats = session.exists_many([create.path for create in entered])
    return tuple(create for create, stat in zip(entered, stats, strict=True) if stat is None)


def _entered(subscription_id: str, event: NotableEvent) -> Create:
    return Create(paths.waiting_event(subscription_id, event.key), codec.encode(event), role=Role.SHARED)


def enter(session: Session, event: NotableEvent) -> None:
    """Enter the event for those who want it; one that waits already is the same."""
    for create in creating(session, event):
        with suppress(Contended):
            commit(session, [create])


def tell(session: Session, subscription_id: str, event: NotableEvent) -> None:
    """Enter the event for this subscription, whatever it is to."""
    with suppress(Contended):
        commit(session, [_entered(subscription_id, event)])


def of_batch(
    session: Session, batch: Batch, status: BatchStatus, title: str, *, asks: bool
) -> tuple[Create, ...]:
    """Operations that tell of a batch that ends or is held; `title`: the subject of its report."""
    kind = {
        BatchState.COMPLETED: EventKind.DONE,
        BatchState.FAILED: EventKind.FAILED,
        BatchState.HELD: EventKind.NEEDS_ME,
    }.get(status.status)
    if kind is None:
        return ()
    held = kind is EventKind.NEEDS_ME
    fallback = f"{batch.submission.profile_name}: {'on hold' if held else 'ended without a report'}"
    event = NotableEvent(
        kind=kind,
        about=batch.bid,
        number=status.epoch if held else status.reports,
        at=status.last_modified,
        title=title or f"{fallback} ({batch.submission.name})",
        text=status.message,
        collection=batch.submission.profile_name,
        owner=batch.submission.owner,
        asks=asks,
    )
    return creating(session, event)


def of_review(session: Session, job: Job, state: JobState) -> tuple[Create, ...]:
    """Operations that tell of the first job of a batch that waits for a review; later ones tell nothing."""
    if state is not JobState.REVIEW or not known(session):
        return ()
    submission = Node(paths.submission(job.bid), Submission).readable(session)
    if submission is None:
        return ()
    event = NotableEvent(
        kind=EventKind.NEEDS_ME,
        about=job.bid,
        at=job.status.since,
        title=f"{job.profile_name}: waits for a review ({submission.name})",
        text="Objects were downloaded and wait: somebody approves or rejects them before they are stored.",
        collection=job.profile_name,
        owner=submission.owner,
    )
    return creating(session, event)


def add(session: Session, subscription: Subscription, first: NotableEvent | None) -> None:
    """Enter the subscription, and what is sent at once; UsageRefused at the limit."""
    for folder in (paths.SUBSCRIPTIONS, paths.DELIVERIES):
        session.ensure_node(folder)
    if len(session.children(paths.SUBSCRIPTIONS)) >= MOST:
        raise UsageRefused(f"this site has {MOST} subscriptions, as many as it may: remove some")
    operations = [
        Create(paths.subscription(subscription.id), codec.encode(subscription)),
        Create(paths.delivery(subscription.id), codec.encode(Delivery())),
        *([_entered(subscription.id, first)] if first else ()),
    ]
    commit(session, operations)
    remembered.forget(session, paths.SUBSCRIPTIONS)


def change(session: Session, subscription: Subscription, **facts: object) -> Subscription:
    """The subscription with other facts; Missing if it is gone."""
    path = paths.subscription(subscription.id)
    try:
        return Node(path, Subscription).change(session, lambda now: now.model_copy(update=facts))
    finally:
        remembered.forget(session, path)


@dataclass(frozen=True)
class Subscribed:
    """A subscription with the state of its deliveries."""

    subscription: Subscription
    delivery: Delivery = field(default_factory=Delivery)
    version: int = -1
    """Of the delivery."""
    waiting: int = 0
    """Events that wait, besides those that are being sent."""


def read(session: Session, names: Sequence[str] | None = None) -> Iterator[Subscribed]:
    """The readable subscriptions, or those with these ids, as they are now."""
    names = session.children(paths.SUBSCRIPTIONS) if names is None else names
    ids = paths.owned(paths.SUBSCRIPTIONS, names)
    readable = list(read_each(session, ids, paths.subscription, partial(codec.decode, Subscription)))
    places = [paths.delivery(name) for name, _, _ in readable]
    for (name, subscription, stat), node in zip(readable, session.get_many(places), strict=True):
        delivery = _deliveries(name).decode(node[0]) if node else Delivery()
        yield Subscribed(subscription, delivery, node[1].version if node else -1, stat.numChildren)


def find(session: Session, subscription_id: str) -> Subscribed | None:
    """The subscription; None if there is none, or if it has ended."""
    return next((one for one in read(session, [subscription_id]) if one.subscription.ended is None), None)


def waiting(session: Session, subscription_id: str) -> list[str]:
    """The keys of the events that wait, by kind and by what they are about."""
    return session.children(paths.subscription(subscription_id))


def read_events(session: Session, subscription_id: str, keys: Sequence[str]) -> dict[str, NotableEvent]:
    """The readable ones of the events with these keys."""
    path = partial(paths.waiting_event, subscription_id)
    rows = read_each(session, keys, path, partial(codec.decode, NotableEvent))
    return {key: event for key, event, _ in rows}


def take(session: Session, entry: Subscribed, delivery: Delivery, events: Sequence[str] = ()) -> Subscribed:
    """Write the delivery and remove the events that it has taken, in one transaction; Stale if it changed."""
    name = entry.subscription.id
    put = Put(paths.delivery(name), codec.encode(delivery), entry.version, role=Role.FENCE)
    results = commit(session, [put, *(Delete(paths.waiting_event(name, key)) for key in events)])
    return Subscribed(entry.subscription, delivery, results[0].version, entry.waiting - len(events))


def clear(session: Session, subscription_id: str) -> None:
    """Remove the events that wait."""
    keys = waiting(session, subscription_id)
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        commit(session, [Delete(paths.waiting_event(subscription_id, key)) for key in some])


def remove(session: Session, subscription_id: str) -> None:
    """Remove all that is kept for the subscription; if an event enters meanwhile, the next try removes it."""
    clear(session, subscription_id)
    nodes = (paths.delivery(subscription_id), paths.subscription(subscription_id))
    present = [path for path, stat in zip(nodes, session.exists_many(nodes), strict=True) if stat is not None]
    with suppress(Contended):
        commit(session, [Delete(path, role=Role.SHARED) for path in present])


def resume(session: Session, subscription: Subscription) -> None:
    """Have the next run send what waits, whatever failed before."""
    change(session, subscription, suspended=None)
    anew = {"next": None, "failing_since": None}
    _deliveries(subscription.id).change(
        session, lambda now: now.model_copy(update=anew) if now.failing_since else now
    )


def counts(session: Session) -> Mapping[str, int]:
    """Subscriptions, and the events that wait for them."""
    entries = list(read(session))
    return {
        "subscriptions": sum(one.subscription.ended is None for one in entries),
        "waiting": sum(one.waiting + one.delivery.count for one in entries),
        "suspended": sum(one.subscription.suspended is not None for one in entries),
    }
