"""Subscriptions to events: add, confirm, list, test and end them."""

from __future__ import annotations

import hmac
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pydantic import Field

from pipeline import codes
from pipeline.errors import ArklineError, UsageRefused
from pipeline.http import urls
from pipeline.notify import notification, report_mail
from pipeline.notify.subscription import (
    CONFIRM,
    TEST,
    DigestMode,
    EventKind,
    NotableEvent,
    Subscription,
    new_id,
)
from pipeline.principal import Forbidden, Principal, Role
from pipeline.records import Record, SentRecord, now
from zkstate.record import subscriptions
from zkstate.record.subscriptions import Subscribed

if TYPE_CHECKING:
    from operations.site import Site

OF_ONE = 20
"""Subscriptions of one principal, with those that ended within a day."""

OF_ADDRESS = 3
"""Subscriptions of one address that are not confirmed, with those that ended within a day."""

RENEWED_AFTER = timedelta(hours=1)


class NewSubscription(SentRecord):
    events: tuple[EventKind, ...] = Field(min_length=1, max_length=20)
    mail: str = Field("", max_length=320, description="A mail address; it gets a mail to confirm it.")
    webhook: str = Field("", max_length=2000, description="A URL that gets signed POST requests.")
    digest: DigestMode = DigestMode.AT_ONCE
    collections: tuple[str, ...] = Field((), max_length=100, description="Only these; none: all you see.")


class SubscriptionView(Record):
    id: str
    owner: str
    events: tuple[str, ...]
    collections: tuple[str, ...] = ()
    mail: str = ""
    webhook: str = ""
    digest: DigestMode
    created: datetime
    confirmed: bool
    suspended: datetime | None = None
    """Deliveries failed for too long; a test that is sent starts them again."""
    waiting: int = 0
    """Events that are not delivered yet."""
    delivered: int = 0
    last: datetime | None = None
    """The last accepted delivery."""
    next: datetime | None = None
    """Nothing is sent before."""
    error: str = ""
    """Why the last delivery was not accepted; empty if it was."""
    signing_key: str = Field("", repr=False)
    """The webhook's key, for its owner only."""


class Subscriptions(Record):
    subscriptions: tuple[SubscriptionView, ...]


class Confirmed(Record):
    id: str
    confirmed: bool = True


class Ended(Record):
    id: str
    ended: bool = True


class NoSuchSubscription(ArklineError):
    code = codes.NO_SUCH_SUBSCRIPTION


def add(site: Site, caller: Principal, asked: NewSubscription) -> SubscriptionView:
    """Subscribe the caller; a mail address is asked to confirm first. UsageRefused at a limit."""
    subscription = Subscription(
        id=new_id(),
        name=caller.identity.partition(":")[2],
        local=caller.is_local,
        role=caller.role,
        allowed=caller.collections,
        visited=now(),
        events=tuple(dict.fromkeys(asked.events)),
        collections=asked.collections,
        mail=asked.mail.strip(),
        webhook=asked.webhook.strip(),
        digest=asked.digest,
        confirmed=not asked.mail.strip(),
        created=now(),
    )
    signing_key = notification.signing_key(site.settings, subscription.id)
    _check_place(subscription)
    _check_rights(caller, subscription)
    _check_limits(site, subscription)
    first = _urgent(subscription, CONFIRM, "Please confirm this address for notifications")
    subscriptions.add(site.session, subscription, None if subscription.confirmed else first)
    return _view(Subscribed(subscription), signing_key)


def _check_place(subscription: Subscription) -> None:
    mail, webhook = subscription.mail, subscription.webhook
    if bool(mail) == bool(webhook):
        raise UsageRefused("give a mail address or the URL of a webhook, one of them")
    if mail and not report_mail.is_address(mail):
        raise UsageRefused(f"'{mail}' is not a mail address: write name@host")
    if webhook and (problem := urls.web_problem(webhook)):
        raise UsageRefused(f"the webhook {urls.redact_url(webhook)}{problem}")
    if urls.redact_url(webhook) != webhook:
        raise UsageRefused(
            "the webhook's URL has a user, a password or a value that looks like one, which is not kept: "
            "give one without; the receiver checks the signature of each request"
        )


def may_have(caller: Principal, kind: str) -> bool:
    """Whether the caller may subscribe to events of this kind."""
    if kind == EventKind.OUTAGE:
        return caller.sees_fleet
    return kind != EventKind.FIXITY or caller.role is not Role.DEPOSITOR


def _check_rights(caller: Principal, subscription: Subscription) -> None:
    needed = {
        EventKind.OUTAGE: "outages: this needs rights for all collections",
        EventKind.FIXITY: "fixity alarms: depositors do not see checks",
    }
    for kind, what in needed.items():
        if kind in subscription.events and not may_have(caller, kind):
            raise Forbidden(f"{caller.name} must not subscribe to {what}")
    foreign = sorted(set(subscription.collections) - (caller.collections or set(subscription.collections)))
    if foreign:
        raise Forbidden(f"{caller.name} must not subscribe to collection {foreign[0]}")


def _check_limits(site: Site, new: Subscription) -> None:
    """Count what ended a short time ago too: to remove and to add again must not send mail without limit."""
    known = [entry.subscription for entry in subscriptions.read(site.session)]
    if sum(one.owner.identity == new.owner.identity for one in known) >= OF_ONE:
        raise UsageRefused(f"you have {OF_ONE} subscriptions, as many as one may: remove one, and wait a day")
    same = [one for one in known if new.mail and one.mail.casefold() == new.mail.casefold()]
    if sum(not one.confirmed or one.ended is not None for one in same) >= OF_ADDRESS:
        raise UsageRefused(
            f"{new.mail} was asked {OF_ADDRESS} times to confirm: confirm one of them, or wait a day"
        )


def _urgent(subscription: Subscription, kind: str, title: str, text: str = "") -> NotableEvent:
    moment = now()
    number = int(moment.timestamp() * 1000)
    return NotableEvent(kind=kind, about=subscription.id, number=number, at=moment, title=title, text=text)


def listed(site: Site, caller: Principal) -> Subscriptions:
    """The caller's subscriptions; an operator of all collections sees everybody's."""
    views = []
    for entry in subscriptions.read(site.session):
        if entry.subscription.ended is None and _may_manage(caller, entry.subscription):
            _renew(site, caller, entry.subscription)
            views.append(_view(entry))
    return Subscriptions(subscriptions=tuple(sorted(views, key=lambda view: (view.owner, view.created))))


def mailed(site: Site, caller: Principal) -> str:
    """The confirmed address to which all ends of the caller's deposits are mailed; empty if there is none."""
    ends = {EventKind.DONE, EventKind.FAILED}
    known = (entry.subscription for entry in subscriptions.read(site.session))
    own = (one for one in known if _is_own(caller, one) and one.confirmed and one.ended is None)
    all_ends = (one for one in own if not one.collections and ends <= set(one.events))
    return next((one.mail for one in all_ends if one.mail), "")


def _renew(site: Site, caller: Principal, subscription: Subscription) -> None:
    """Note that the owner is here, and her rights: of a person they are known only now."""
    rights = {"role": caller.role, "allowed": caller.collections}
    same = (subscription.role, subscription.allowed) == (caller.role, caller.collections)
    if _is_own(caller, subscription) and not (same and now() - subscription.visited < RENEWED_AFTER):
        subscriptions.change(site.session, subscription, visited=now(), **rights)


def show(site: Site, caller: Principal, subscription_id: str) -> SubscriptionView:
    """The subscription; for its owner, with the key of its webhook."""
    entry = _managed(site, caller, subscription_id)
    own = _is_own(caller, entry.subscription)
    return _view(entry, notification.signing_key(site.settings, entry.subscription.id) if own else b"")


def confirm(site: Site, subscription_id: str, code: str) -> None:
    """Confirm the address with the code that was mailed to it. Idempotent."""
    subscription = _by_code(site, subscription_id, "confirm", code)
    if not subscription.confirmed:
        subscriptions.change(site.session, subscription, confirmed=True)


def end_by_code(site: Site, subscription_id: str, code: str) -> None:
    """End a subscription with the code that is in each of its mails."""
    subscriptions.change(site.session, _by_code(site, subscription_id, "end", code), ended=now())


def send_test(site: Site, caller: Principal, subscription_id: str) -> SubscriptionView:
    """Have a test sent within seconds; the list says how it went. A suspended subscription begins again."""
    subscription = _managed(site, caller, subscription_id).subscription
    if not subscription.confirmed:
        raise UsageRefused(f"{subscription.mail} has not confirmed yet: nothing else is sent before")
    subscriptions.resume(site.session, subscription)
    text = f"{caller.name} asked for this test. Nothing was deposited, and nothing is wrong."
    event = _urgent(subscription, TEST, "arkline: a test of your notifications", text)
    subscriptions.tell(site.session, subscription.id, event)
    return show(site, caller, subscription_id)


def remove(site: Site, caller: Principal, subscription_id: str) -> None:
    subscription = _managed(site, caller, subscription_id).subscription
    subscriptions.change(site.session, subscription, ended=now())


def _managed(site: Site, caller: Principal, subscription_id: str) -> Subscribed:
    entry = subscriptions.find(site.session, subscription_id)
    if entry is None or not _may_manage(caller, entry.subscription):
        raise NoSuchSubscription(f"there is no subscription {subscription_id[:40]} of yours")
    return entry


def _by_code(site: Site, subscription_id: str, purpose: notification.Purpose, code: str) -> Subscription:
    """The subscription; one answer for a wrong code and a wrong id, so that nobody learns which there are."""
    entry = subscriptions.find(site.session, subscription_id)
    expected = notification.code_of(site.settings, subscription_id, purpose)
    if entry is None or not hmac.compare_digest(expected.encode(), code.strip().lower().encode()):
        raise NoSuchSubscription("the link or the code is not valid, or the subscription has ended")
    return entry.subscription


def _is_own(caller: Principal, subscription: Subscription) -> bool:
    return subscription.owner.identity == caller.identity


def _may_manage(caller: Principal, subscription: Subscription) -> bool:
    return _is_own(caller, subscription) or (caller.role.includes(Role.OPERATOR) and caller.sees_fleet)


def _view(entry: Subscribed, signing_key: bytes = b"") -> SubscriptionView:
    subscription, delivery = entry.subscription, entry.delivery
    facts = {
        **vars(delivery),
        **vars(subscription),
        "owner": subscription.name,
        "waiting": entry.waiting + delivery.count,
        "signing_key": signing_key.decode() if subscription.webhook else "",
    }
    return SubscriptionView.model_validate(facts)
