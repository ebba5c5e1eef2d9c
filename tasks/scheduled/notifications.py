"""Sends what waits for subscriptions, as scheduled work with a limit of time.

A delivery is everything that waits for one subscription: it is taken in a transaction, which fixes its
content, and sent until it is accepted. So a crash loses nothing, and a repetition has the same Message-ID or
`webhook-id`. Who subscribes is judged again each time.
"""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from pipeline.errors import UsageRefused
from pipeline.inventory.archive import sent_reports
from pipeline.inventory.sight import Sight
from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.tokens import token_named
from pipeline.notify.callback import Receiver, post, signed_headers
from pipeline.notify.notification import delivery_id, notification_mail, signing_key, webhook_body
from pipeline.notify.subscription import (
    CONFIRM,
    TEST,
    Delivery,
    EventKind,
    NotableEvent,
    Subscription,
    is_person,
)
from pipeline.outcome import StepFailed, system
from pipeline.records import now
from pipeline.states import FailureKind
from tasks.logs import log
from tasks.redis_keys import Counted, Outcome, count
from tasks.retry import giving_up
from tasks.worker_context import WorkerContext
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session
from zkstate.record import subscriptions
from zkstate.record.subscriptions import AT_ONCE, Subscribed

WORK = "notifications"
"""The name of the work, which one process of the fleet does at a time."""

RUN_SECONDS = 30.0
"""A run begins no delivery after so long; the next run continues."""

WEBHOOK_TIMEOUT = 10.0

LISTED = 50
"""Events that a delivery tells; further ones are counted."""

RECENT = 100
"""Keys of delivered events of the fleet and of objects that are remembered."""

WAITING = 20_000
"""Events that may wait for a subscription before it is suspended."""

FIRST_PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(hours=1)
"""Between two tries: as long as deliveries have failed, within these limits."""

SUSPENDED_AFTER = timedelta(days=3)
"""Time for which a webhook, or a mail that is refused for good, is tried again."""

UNCONFIRMED_FOR = timedelta(days=7)
UNSEEN_FOR = timedelta(days=30)
"""Time for which the rights of a person count whom only the login provider knows."""

FORGOTTEN_AFTER = timedelta(days=1)
"""Time for which a subscription that ended counts for the limits of its owner and of its address."""

URGENT = (CONFIRM, TEST)
WITHOUT_INVENTORY = (*URGENT, EventKind.OUTAGE)
"""What is sent although the rights cannot be judged: it tells nothing of a deposit or an object."""


def run(context: WorkerContext, session: Session, _: ServerClock) -> None:
    """Send what is due, the subscriptions that have waited longest first."""
    guard, began = AttemptGuard(session, context.stopping), time.monotonic()
    entries = subscriptions.read(session)
    for one in sorted(entries, key=lambda one: one.delivery.next or one.subscription.created):
        guard.check()
        if time.monotonic() - began > RUN_SECONDS:
            return
        with giving_up(context, locks=False, subscription=one.subscription.id):
            _serve(context, session, one)


def _serve(context: WorkerContext, session: Session, entry: Subscribed) -> None:
    subscription = entry.subscription
    if subscription.ended is not None:
        if now() - subscription.ended > FORGOTTEN_AFTER:
            subscriptions.remove(session, subscription.id)
        elif entry.waiting:
            subscriptions.clear(session, subscription.id)
    elif not subscription.confirmed and now() - subscription.created > UNCONFIRMED_FOR:
        _end(session, subscription, "its address was not confirmed")
    elif not subscription.suspended and (entry.waiting or entry.delivery.sending):
        _serve_active(context, session, entry)


def _serve_active(context: WorkerContext, session: Session, entry: Subscribed) -> None:
    subscription, inventory = entry.subscription, None
    if entry.waiting > WAITING:
        _suspend(session, subscription, f"{entry.waiting:,} events wait")
    try:
        reason = _ends(context.clients().inventory, subscription)
        if reason is not None:
            _end(session, subscription, reason)
            return
        inventory = context.clients().inventory
    except StepFailed as failure:
        log().warning("rights of a subscription not judged", error=failure.message)
    if not entry.delivery.sending:
        entry = _taken(session, entry, inventory)
    sending, failed = entry.delivery.sending, entry.delivery.failing_since is not None
    due = _is_due(entry) or (not failed and all(one.kind in URGENT for one in sending))
    judged = inventory is not None or all(one.kind in WITHOUT_INVENTORY for one in sending)
    if sending and due and judged:
        _send(context, session, entry, inventory)


def _is_due(entry: Subscribed) -> bool:
    """Whether the pause is over; one longer than any is, as a host whose clock was ahead has entered it."""
    moment, next_at = now(), entry.delivery.next
    longest = max(entry.subscription.digest.pause, LONGEST_PAUSE)
    return next_at is None or not moment < next_at <= moment + longest


def _ends(inventory: SqlInventory, subscription: Subscription) -> str | None:
    """Why the subscription ends: its owner has no rights any more; None if it does not."""
    if subscription.local:
        return None
    if is_person(subscription):
        unseen = now() - subscription.visited > UNSEEN_FOR
        return f"its owner was not here for {UNSEEN_FOR.days} days" if unseen else None
    token = token_named(inventory, subscription.name)
    if token is None or token.revoked is not None:
        return "the token was revoked"
    return "the token expired" if token.expires is not None and token.expires < now() else None


def _end(session: Session, subscription: Subscription, reason: str) -> None:
    log().warning("subscription ended", subscription=subscription.id, owner=subscription.name, reason=reason)
    subscriptions.change(session, subscription, ended=now())
    subscriptions.clear(session, subscription.id)


def _suspend(session: Session, subscription: Subscription, reason: str) -> None:
    log().error("subscription suspended", subscription=subscription.id, reason=reason)
    subscriptions.change(session, subscription, suspended=now())


def _changed(session: Session, entry: Subscribed, events: Sequence[str] = (), **facts: object) -> Subscribed:
    """The delivery with other facts, once the events are removed."""
    return subscriptions.take(session, entry, entry.delivery.model_copy(update=facts), events)


def _taken(session: Session, entry: Subscribed, inventory: SqlInventory | None) -> Subscribed:
    """Begin the next delivery with everything that waits and is due."""
    subscription, delivery = entry.subscription, entry.delivery
    keys = subscriptions.waiting(session, subscription.id)
    urgent = [key for key in keys if key.startswith(URGENT)]
    if not urgent and not _is_due(entry):
        return entry
    due = urgent or [key for key in keys if inventory or key.startswith(WITHOUT_INVENTORY)]
    first, rest = due[:LISTED], due[LISTED:]
    visible = tuple(
        event
        for key, event in subscriptions.read_events(session, subscription.id, first).items()
        if key not in delivery.recent and _sees(inventory, subscription, event)
    )
    entry = _changed(session, entry, first, sending=visible)
    for start in range(0, len(rest) if visible else 0, AT_ONCE):
        some = rest[start : start + AT_ONCE]
        more = Counter(entry.delivery.more) + Counter(key.partition(".")[0] for key in some)
        entry = _changed(session, entry, some, more=dict(more))
    return entry


def _sees(inventory: SqlInventory | None, subscription: Subscription, event: NotableEvent) -> bool:
    if event.kind in URGENT:
        return True
    collections = frozenset(subscription.collections) or subscription.allowed
    if event.kind == EventKind.FIXITY and collections is not None and inventory is not None:
        return subscription.may_see(event) and inventory.is_seen(event.about, Sight(collections))
    return subscription.may_see(event)


def _send(
    context: WorkerContext, session: Session, entry: Subscribed, inventory: SqlInventory | None
) -> None:
    try:
        _deliver(context, entry.subscription, entry.delivery, inventory)
    except (StepFailed, UsageRefused) as error:
        count(context.settings, Counted.NOTIFICATIONS, Outcome.FAILED)
        _put_off(session, entry, error if isinstance(error, StepFailed) else system(str(error)))
        return
    count(context.settings, Counted.NOTIFICATIONS, Outcome.DELIVERED)
    delivery, sent_at = entry.delivery, now()
    of_fleet = [event.key for event in delivery.sending if event.kind in (EventKind.OUTAGE, EventKind.FIXITY)]
    urgent = delivery.sending[0].kind in URGENT
    _changed(
        session,
        entry,
        sending=(),
        more={},
        failing_since=None,
        error="",
        last=sent_at,
        next=delivery.next if urgent else sent_at + entry.subscription.digest.pause,
        delivered=delivery.delivered + delivery.count,
        recent=(*delivery.recent, *of_fleet)[-RECENT:],
    )


def _deliver(
    context: WorkerContext, subscription: Subscription, delivery: Delivery, inventory: SqlInventory | None
) -> None:
    settings = context.settings
    if subscription.mail:
        report = _report(inventory, delivery.sending[0]) if inventory and delivery.count == 1 else ""
        context.clients().mailer.send(notification_mail(settings, subscription, delivery, report))
        return
    body = webhook_body(settings, subscription, delivery)
    keys = (signing_key(settings, subscription.id),)
    signed = signed_headers(delivery_id(subscription, delivery), int(time.time()), body, keys)
    to = Receiver(subscription.webhook, "webhook", "the subscription", WEBHOOK_TIMEOUT)
    post(settings, to, body, {"Content-Type": "application/json", **signed})


def _report(inventory: SqlInventory, event: NotableEvent) -> str:
    """The text of the deposit's report that the event is about; empty if none was kept."""
    of_deposit = event.kind in (EventKind.DONE, EventKind.FAILED)
    reports = sent_reports(inventory, event.about) if of_deposit else ()
    return next((report.text for report in reports if report.number == event.number), "")


def _put_off(session: Session, entry: Subscribed, failure: StepFailed) -> None:
    subscription, moment = entry.subscription, now()
    since = min(entry.delivery.failing_since or moment, moment)
    asked = timedelta(seconds=failure.retry_after or 0)
    pause = min(max(moment - since, FIRST_PAUSE, asked), LONGEST_PAUSE)
    log().warning("notification not delivered", subscription=subscription.id, error=failure.message)
    _changed(session, entry, next=moment + pause, failing_since=since, error=failure.message[:1000])
    for_good = bool(subscription.webhook) or failure.kind is FailureKind.SYSTEM
    if for_good and moment - since > SUSPENDED_AFTER:
        _suspend(session, subscription, failure.message)
