"""The deployment id: record, storage root and inventory carry one id, so that stores of two deployments, an
absent store and an older copy of a store are noticed before anything is written.

Rule: the id is written once, when all three are empty, or by an operator. The record gets it last, so that a
crash between two writes leaves markers that an empty record adopts. `mark` is a number that scheduled work
counts up in the record and then in the inventory: the store that is behind was restored from a backup.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pydantic import ConfigDict, Field

from pipeline.outcome import Service, ServiceDown
from pipeline.records import Record, now

Expected = Callable[[], str]
"""The id of the deployment that a process works for; ServiceDown if the store must not be used now."""

ExpectedOf = Callable[[Service], str]
"""Expected, for a store that is named when it is asked."""

SAMPLE = 10
"""The newest versions of an inventory without an id that storage must have, before the two get one id."""

NAMES = {
    Service.RECORD: "the record",
    Service.STORAGE: "the storage root",
    Service.INVENTORY: "the inventory",
}

_WHERE = {
    Service.RECORD: "restore ZooKeeper's data, or check ARKLINE_ZK_HOSTS and ARKLINE_ZK_ROOT",
    Service.STORAGE: "mount its disk on this host, or check ARKLINE_STORAGE_ROOT or ARKLINE_S3_ROOT",
    Service.INVENTORY: "mount its disk on this host, restore it, or check ARKLINE_INVENTORY_URL",
}


_NEWER = {
    Service.RECORD: "put the newer data back, or stop the fleet and restore the newest backup; if there is "
    "neither, reconcile, which lets numbers continue beyond those that were given",
    Service.INVENTORY: "put the newer data back, or reconcile, which makes the missing entries from storage",
}


class OutdatedStore(ServiceDown):
    """A store of this deployment is older than it was: it was restored from a backup."""


class Deployment(Record):
    """The id as a store keeps it; fields of a later release are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str = Field(default_factory=lambda: secrets.token_hex(16), pattern="^[0-9a-f]{32}$")
    created: datetime = Field(default_factory=now)
    mark: int = 0
    """In the storage root always 0."""
    broker: str | None = None
    """The database and prefix in Redis that this deployment has claimed; in the record only."""


class Store(Protocol):
    """A record, a storage root or an inventory, as the keeper of a deployment id."""

    @property
    def service(self) -> Service: ...

    @property
    def place(self) -> str:
        """Its address for messages, without a password."""

    def read_deployment(self) -> Deployment | None:
        """None if the store has no id or does not exist; ServiceDown if the store does not answer."""

    def write_deployment(self, deployment: Deployment) -> None:
        """Give the store this id and mark; a store that does not exist is created."""


class RecordStore(Store, Protocol):
    def last_job(self) -> int:
        """The last job number that was assigned."""

    def raise_last_job(self, number: int) -> None:
        """Let job numbers continue after this one at least."""

    def raise_mark(self, mark: int) -> None:
        """Let the mark be at least this one, if the record has an id."""

    def has_stored_jobs(self) -> bool:
        """Whether a job of the record has stored its object."""


class KeptStore(Store, Protocol):
    def is_empty(self) -> bool:
        """True if the store has no object and no minted ARK, or does not exist."""


class StorageStore(KeptStore, Protocol):
    def has_version(self, ark: str, jid: str) -> bool:
        """Whether the job's version of the object is stored."""


class InventoryStore(KeptStore, Protocol):
    def last_job(self) -> int:
        """The highest job number in the inventory."""

    def newest_versions(self, limit: int) -> tuple[tuple[str, str], ...]:
        """(ARK, job id) of the versions that were entered last."""


@dataclass(frozen=True)
class Stores:
    record: RecordStore
    storage: StorageStore | None
    """None if the storage service keeps no id."""
    inventory: InventoryStore

    @property
    def kept(self) -> tuple[KeptStore, ...]:
        """The stores beside the record, in the order in which they get an id."""
        return (*((self.storage,) if self.storage else ()), self.inventory)


@dataclass(frozen=True)
class Confirmed:
    """The deployment whose record may be worked on, and the stores that must not be used now."""

    deployment: Deployment
    """As the record has it."""
    faults: Mapping[Service, ServiceDown]


def absent(service: Service, place: str) -> ServiceDown:
    return ServiceDown(
        service,
        f"{NAMES[service]} {place} is not there or has no deployment id: {_WHERE[service]}",
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
        f"{NAMES[service]} {place} is older than it was ({evidence}), so it was restored from a backup: "
        f"{_NEWER[service]}",
    )


def check_marker(service: Service, place: str, marker: Deployment | None, expected: str) -> Deployment:
    """The marker of a store; ServiceDown if the store is absent or belongs to another deployment."""
    if marker is None:
        raise absent(service, place)
    if marker.id != expected:
        raise foreign(service, place, marker, expected)
    return marker


def confirm(stores: Stores, known: Deployment | None = None) -> Confirmed:
    """Compare the three stores; a record without an id gets one if that is safe.

    `known`: what this process has confirmed before. ServiceDown(record) if the record must not be worked on:
    no other store confirms its id, or it is older than the inventory or this process knows it.
    """
    record = stores.record.read_deployment() or _identify(stores)
    faults: dict[Service, ServiceDown] = {}
    confirmed = False
    for store, compare in ((stores.storage, _nothing_more), (stores.inventory, _compare_inventory)):
        if store is None:
            continue
        try:
            marker = check_marker(store.service, store.place, store.read_deployment(), record.id)
            confirmed = True
            compare(stores, marker, record)
        except ServiceDown as fault:
            if fault.service is Service.RECORD:
                raise
            faults[store.service] = fault
    if known is not None and known.id == record.id:
        _compare_mark(stores, known.mark)
    elif not confirmed:
        reasons = "; ".join(fault.message for fault in faults.values())
        raise ServiceDown(
            Service.RECORD, f"nothing confirms the record {stores.record.place} of {record.id}: {reasons}"
        )
    return Confirmed(record, faults)


def _nothing_more(stores: Stores, marker: Deployment, record: Deployment) -> None:
    """A storage root has no mark."""


def _compare_inventory(stores: Stores, marker: Deployment, record: Deployment) -> None:
    """OutdatedStore if record or inventory is older than the other knows it."""
    compare_age(stores, marker)
    if marker.mark + 1 < record.mark:
        evidence = f"its mark is {marker.mark}, that of the record {record.mark}"
        raise outdated(Service.INVENTORY, stores.inventory.place, evidence)


def compare_age(stores: Stores, marker: Deployment) -> None:
    """OutdatedStore if the record is older than the inventory, whose marker this is, knows it."""
    _compare_jobs(stores)
    _compare_mark(stores, marker.mark)


def _compare_mark(stores: Stores, mark: int) -> None:
    """The record is read now: the marks may be counted up between two reads."""
    record = stores.record.read_deployment()
    if record is None or record.mark < mark:
        evidence = f"its mark is {record.mark if record else 'gone'}, but {mark} was seen"
        raise outdated(Service.RECORD, stores.record.place, evidence)


def _compare_jobs(stores: Stores) -> None:
    entered = stores.inventory.last_job()
    assigned = stores.record.last_job()  # read last: a job may be created and entered between the two
    if entered > assigned:
        evidence = f"its last job number is {assigned}, but the inventory has job number {entered}"
        raise outdated(Service.RECORD, stores.record.place, evidence)


def _identify(stores: Stores) -> Deployment:
    """The id for a record without one: new if all stores are empty, else that of stores that agree."""
    deployment = next((marker for _, marker in _marked(stores)), None) or Deployment()
    for store, marker in _marked(stores):
        if marker.id != deployment.id:
            raise foreign(store.service, store.place, marker, deployment.id)
    _check_agreement(stores)
    write_missing(stores, deployment)
    return deployment


def _marked(stores: Stores) -> Iterator[tuple[Store, Deployment]]:
    for store in stores.kept:
        if marker := store.read_deployment():
            yield store, marker


def check_not_lost(stores: Stores) -> None:
    """ServiceDown(record) if the record is empty and another store is not."""
    for store in stores.kept:
        if stores.record.last_job() == 0 and not store.is_empty():
            raise ServiceDown(
                Service.RECORD,
                f"the record {stores.record.place} is empty, but {NAMES[store.service]} {store.place} is "
                f"not: {_WHERE[Service.RECORD]}; if the record is lost, initialize a new one",
            )


def _check_agreement(stores: Stores) -> None:
    """ServiceDown unless a record without an id belongs to storage root and inventory."""
    check_not_lost(stores)
    for store in stores.kept:
        if stores.record.has_stored_jobs() and store.is_empty():
            raise absent(store.service, store.place)
    _compare_jobs(stores)
    storage = stores.storage
    for ark, jid in stores.inventory.newest_versions(SAMPLE) if storage else ():
        if storage is not None and not storage.has_version(ark, jid):
            raise ServiceDown(
                Service.STORAGE,
                f"the inventory {stores.inventory.place} has {ark} from job {jid}, but the storage root "
                f"{storage.place} does not: {_WHERE[Service.STORAGE]}",
            )


def write_missing(stores: Stores, deployment: Deployment) -> None:
    """Give every store without an id this one; the record last."""
    for store in (*stores.kept, stores.record):
        if store.read_deployment() is None:
            store.write_deployment(deployment)


OLDER = 2
"""A store whose mark is behind by so much is an older copy."""


def join_missing(stores: Stores) -> None:
    """Give the deployment's id to every store without one; a store that does not exist is created, empty.

    For an operator who knows that a lost store will not come back, or that an older store belongs here. An
    empty inventory is marked as an older copy, which is not used before its entries are made from storage.
    ServiceDown if two stores belong to different deployments.
    """
    marked = [
        (store, marker) for store in (*stores.kept, stores.record) if (marker := store.read_deployment())
    ]
    deployment = max((marker for _, marker in marked), key=lambda marker: marker.mark, default=Deployment())
    for store, marker in marked:
        if marker.id != deployment.id:
            raise foreign(store.service, store.place, marker, deployment.id)
    stores.record.raise_last_job(stores.inventory.last_job())
    newer = deployment
    if _lacks_entries(stores):
        newer = deployment.model_copy(update={"mark": deployment.mark + OLDER})
        stores.record.raise_mark(newer.mark)  # first: a crash must not leave an empty inventory with its mark
        stores.inventory.write_deployment(deployment)
    write_missing(stores, newer)


def _lacks_entries(stores: Stores) -> bool:
    """Whether the inventory is to get an id, and is empty although objects were stored."""
    if stores.inventory.read_deployment() is not None or not stores.inventory.is_empty():
        return False
    stored = stores.storage is not None and not stores.storage.is_empty()
    return stored or stores.record.has_stored_jobs()
