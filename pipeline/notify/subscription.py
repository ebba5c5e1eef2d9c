"""Subscriptions: who is notified of which events, by mail or by a signed webhook.

Rule: nothing secret is kept; `notification` derives what a link or a signature proves.
"""

import hashlib
import secrets
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import quote

from pydantic import Field

from pipeline.principal import Interface, Principal, Role
from pipeline.records import RewrittenRecord


class EventKind(StrEnum):
    DONE = "done"
    FAILED = "failed"
    NEEDS_ME = "needs-me"
    OUTAGE = "outage"
    FIXITY = "fixity"


CONFIRM, TEST = "confirm", "test"
"""The kinds of what is sent at once, whatever the subscription is to."""


class DigestMode(StrEnum):
    AT_ONCE = "at-once"
    HOURLY = "hourly"
    DAILY = "daily"

    @property
    def pause(self) -> timedelta:
        """The minimum time between two deliveries."""
        return {"hourly": timedelta(hours=1), "daily": timedelta(days=1)}.get(self, timedelta())


class NotableEvent(RewrittenRecord):
    """`/subscriptions/ID/KEY`: the event, in words that every release can send."""

    kind: str
    """An EventKind, or one that only another release knows."""
    about: str
    """A batch, an object or a service."""
    number: int = 0
    """Which of the events about it: that of the report, or the time."""
    at: datetime
    title: str
    text: str = ""
    collection: str = ""
    owner: str = ""
    """The identity of the depositor, of an event of a deposit."""
    asks: bool = False
    """Whether somebody has to consent or to decide, whatever the kind is."""

    @property
    def key(self) -> str:
        """Its identity, and the name of its node: `done.bid0000000001.1`."""
        return f"{self.kind}.{quote(self.about, safe='')[:150]}.{self.number}"


TITLE, TEXT = 300, 1500
"""Maximum characters of an event's title and text."""


class Subscription(RewrittenRecord):
    """`/subscriptions/ID`."""

    id: str
    name: str
    """The owner: the name of a token, of a person at a login provider, or of an account of the machine."""
    local: bool = False
    """Whether the name is that of an account of the machine."""
    role: Role
    allowed: frozenset[str] | None = None
    """The collections of the owner's rights; None: all."""
    visited: datetime
    """When the rights were last those of the owner."""
    events: tuple[str, ...]
    """EventKinds, and those that only another release knows."""
    collections: tuple[str, ...] = ()
    """Only these; empty: all that the owner sees."""
    mail: str = ""
    webhook: str = Field("", repr=False)
    digest: DigestMode = DigestMode.AT_ONCE
    confirmed: bool = False
    created: datetime
    suspended: datetime | None = None
    """Deliveries failed for too long: nothing is entered until the owner sends a test."""
    ended: datetime | None = None

    @property
    def owner(self) -> Principal:
        interface = Interface.CLI if self.local else Interface.WORKER
        return Principal(name=self.name, role=self.role, collections=self.allowed, interface=interface)

    @property
    def active(self) -> bool:
        return self.confirmed and self.ended is None and self.suspended is None

    def wants(self, event: NotableEvent) -> bool:
        chosen = event.kind in self.events or (event.asks and EventKind.NEEDS_ME in self.events)
        listed = not (self.collections and event.collection) or event.collection in self.collections
        return self.active and chosen and listed and self.may_see(event)

    def may_see(self, event: NotableEvent) -> bool:
        """Whether its owner may learn of the event; of an object, the inventory knows the collections."""
        match event.kind:
            case EventKind.OUTAGE:
                return self.owner.sees_fleet
            case EventKind.FIXITY:
                return self.role is not Role.DEPOSITOR
            case _:
                return self.owner.sees(event.collection, event.owner)


def new_id() -> str:
    return secrets.token_hex(8)


def is_person(subscription: Subscription) -> bool:
    """Whether the owner's rights are known only while she is logged in: the provider has them."""
    return not subscription.local and ":" in subscription.name


class Delivery(RewrittenRecord):
    """`/deliveries/ID`: what is being sent for a subscription, and how it went."""

    sending: tuple[NotableEvent, ...] = ()
    """Taken together from what waits, and sent until it is accepted."""
    more: dict[str, int] = Field(default_factory=dict)
    """Further events of the same delivery, by kind."""
    next: datetime | None = None
    """When the next delivery may begin."""
    failing_since: datetime | None = None
    error: str = ""
    last: datetime | None = None
    """When a delivery was last accepted."""
    delivered: int = 0
    """Events in accepted deliveries."""
    recent: tuple[str, ...] = ()
    """Keys of the last events of the fleet and of objects: they may be entered again after a crash."""

    @property
    def count(self) -> int:
        return len(self.sending) + sum(self.more.values())

    @property
    def digest(self) -> str:
        """Of what is sent: the same for each repetition, even by a record that was restored."""
        content = [*(event.key for event in self.sending), *map(str, sorted(self.more.items()))]
        return hashlib.sha256("\n".join(content).encode()).hexdigest()[:16]
