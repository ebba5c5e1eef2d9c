"""The deployment id: record, storage root and inventory carry the same id, so that a store of another
deployment, an absent store or an older copy of a store is detected before anything is written.
"""

import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from pydantic import ConfigDict, Field

from pipeline.outcome import Service, ServiceDown
from pipeline.records import Record, now

Expected = Callable[[], str]
"""The id of the deployment that a process works for; ServiceDown if the store must not be used now."""

ExpectedOf = Callable[[Service], str]
"""Expected, for a store named in the call."""

NAMES = {
    Service.RECORD: "the record",
    Service.STORAGE: "the storage root",
    Service.INVENTORY: "the inventory",
}

WHERE = {
    Service.RECORD: "restore ZooKeeper's data, or check ARKLINE_ZK_HOSTS and ARKLINE_ZK_ROOT",
    Service.STORAGE: "mount its disk on this host, or check ARKLINE_STORAGE_ROOT or ARKLINE_S3_ROOT",
    Service.INVENTORY: "mount its disk on this host, restore it, or check ARKLINE_INVENTORY_URL",
}


_NEWER = {
    Service.RECORD: "put the newer data back, or stop the fleet and restore the newest backup; if there is "
    "neither, repair the record, which lets numbers continue beyond those that were given",
    Service.INVENTORY: "put the newer data back, or repair the inventory, which makes "
    "the missing entries from storage",
}


class OutdatedStore(ServiceDown):
    """A store of this deployment is older than it was, as if restored from a backup."""


class Deployment(Record):
    """The id as a store keeps it; fields of later releases are preserved."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str = Field(default_factory=lambda: secrets.token_hex(16), pattern="^[0-9a-f]{32}$")
    created: datetime = Field(default_factory=now)
    mark: int = 0
    """A number that scheduled work increments in the record and then in the inventory: the store that is
    behind is older than it was. In the storage root always 0."""
    broker: str | None = None
    """The database and prefix in Redis that this deployment has claimed; in the record only."""


class Store(Protocol):
    """A record, a storage root or an inventory, as the keeper of a deployment id."""

    @property
    def service(self) -> Service: ...

    @property
    def place(self) -> str:
        """The store's address for messages, without a password."""

    def read_deployment(self) -> Deployment | None:
        """None if the store has no id or does not exist; ServiceDown if the store does not answer."""

    def write_deployment(self, deployment: Deployment) -> None:
        """Give the store this id and mark unless it has another id; a store that does not exist is made."""

    def is_empty(self) -> bool:
        """True if the store has no job, no object and no minted ARK, or does not exist."""


class StorageStore(Store, Protocol):
    def has_version(self, ark: str, jid: str) -> bool:
        """Whether the job's version of the object is stored."""


def absent(service: Service, place: str) -> ServiceDown:
    return ServiceDown(
        service,
        f"{NAMES[service]} {place} is not there or has no deployment id: {WHERE[service]}",
        of_host=True,
    )


def foreign(service: Service, place: str, marker: Deployment, expected: str) -> ServiceDown:
    return ServiceDown(
        service,
        f"{NAMES[service]} {place} belongs to deployment {marker.id}, not to {expected}: check the settings "
        "that name record, storage root and inventory",
        of_host=True,
    )


def outdated(service: Service, place: str, evidence: str) -> OutdatedStore:
    return OutdatedStore(
        service,
        f"{NAMES[service]} {place} is older than it was ({evidence}), as if restored from a backup: "
        f"{_NEWER[service]}",
    )


def check_marker(service: Service, place: str, marker: Deployment | None, expected: str) -> Deployment:
    """The marker of a store; ServiceDown if the store is absent or belongs to another deployment."""
    if marker is None:
        raise absent(service, place)
    if marker.id != expected:
        raise foreign(service, place, marker, expected)
    return marker
