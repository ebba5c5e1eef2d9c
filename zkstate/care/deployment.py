"""Checks by a common id that record, storage root and inventory belong together.

Rule: the id is written once, when all three are empty, or by an operator. The record gets it last, so that a
crash between two writes leaves markers that an empty record adopts. A store whose mark is behind that of
another was restored from a backup.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pipeline.deployment import (
    NAMES,
    WHERE,
    Deployment,
    StorageStore,
    Store,
    absent,
    check_marker,
    foreign,
    outdated,
)
from pipeline.outcome import Service, ServiceDown
from pipeline.settings import Settings
from pipeline.states import JOB, Bucket
from zkstate import codec, paths
from zkstate.connection.session import Session, connect
from zkstate.errors import Unreachable
from zkstate.fleet import counters
from zkstate.queue import listings
from zkstate.record.node import Node

if TYPE_CHECKING:
    from pipeline.inventory.sql import SqlInventory

SAMPLE = 10
"""Newest versions in an inventory without id that storage must have before the two get a common id."""

OLDER = 2
"""A store whose mark is this far behind is an older copy."""

_NODE = Node(paths.DEPLOYMENT, Deployment)


def read(session: Session) -> Deployment | None:
    """The deployment as ZooKeeper's leader has it; None if the record has no id."""
    dated = read_dated(session)
    return dated[0] if dated else None


def read_dated(session: Session) -> tuple[Deployment, datetime] | None:
    """Like `read`, with the time of the last write: scheduled work increments the mark."""
    _sync(session)
    stored = _NODE.find(session)
    return (stored.content, datetime.fromtimestamp(stored.stat.mtime / 1000, UTC)) if stored else None


def _sync(session: Session) -> None:
    session.ask(session.zk.sync_async, paths.DEPLOYMENT)


def raise_mark(session: Session, mark: int) -> Deployment:
    """Raise the mark to at least `mark`; returns the deployment. Missing if the record has no id."""
    return _NODE.change(session, lambda was: was.model_copy(update={"mark": max(mark, was.mark)}))


def note_broker(session: Session, broker: str) -> None:
    """Record the prefix in Redis that this deployment has claimed; Missing if the record has no id."""
    _NODE.change(session, lambda was: was.model_copy(update={"broker": broker}))


def last_job(session: Session) -> int:
    """The last job number that was assigned, as ZooKeeper's leader has it."""
    _sync(session)
    return counters.last(session, "job")


def has_stored_jobs(session: Session) -> bool:
    """Whether a job of the record has stored its object."""
    buckets = [paths.bucket(bid, Bucket.COMPLETED) for bid in listings.all_batches(session)]
    queues = [paths.queue(state) for state in JOB.where(lambda facts: facts.stored)]
    return any(session.count_children(*queues, *buckets))


@dataclass(frozen=True)
class RecordDeployment:
    """The record, as one of the three stores."""

    session: Session

    @property
    def service(self) -> Service:
        return Service.RECORD

    @property
    def place(self) -> str:
        return f"{self.session.hosts}{self.session.root}"

    def read_deployment(self) -> Deployment | None:
        return read(self.session)

    def write_deployment(self, deployment: Deployment) -> None:
        self.session.ensure_node(paths.DEPLOYMENT, codec.encode(deployment))

    def is_empty(self) -> bool:
        return last_job(self.session) == 0


@dataclass(frozen=True)
class Stores:
    record: RecordDeployment
    storage: StorageStore | None
    """None if the storage service keeps no id."""
    inventory: SqlInventory

    @property
    def kept(self) -> tuple[Store, ...]:
        """The stores other than the record, in the order in which they get an id."""
        return (*((self.storage,) if self.storage else ()), self.inventory)

    @property
    def every(self) -> tuple[Store, ...]:
        """All stores, the record last: it gets an id once the others have it."""
        return (*self.kept, self.record)


@dataclass(frozen=True)
class Confirmed:
    """The deployment whose record may be worked on, and the stores that must not be used now."""

    deployment: Deployment
    """As the record has it."""
    faults: Mapping[Service, ServiceDown]


def confirm(stores: Stores, known: Deployment | None = None) -> Confirmed:
    """Compare the three stores; a record without an id gets one if that is safe.

    `known`: what this process has confirmed before. ServiceDown(record) if the record must not be worked on:
    no other store confirms its id, or it is older than the inventory or this process has seen it.
    """
    record = stores.record.read_deployment() or _identify(stores)
    faults: dict[Service, ServiceDown] = {}
    confirmed = False
    for store in stores.kept:
        try:
            marker = check_marker(store.service, store.place, store.read_deployment(), record.id)
            confirmed = True
            if store is stores.inventory:
                compare_age(stores, marker)
                if marker.mark <= record.mark - OLDER:
                    evidence = f"its mark is {marker.mark}, that of the record {record.mark}"
                    raise outdated(Service.INVENTORY, store.place, evidence)
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


def compare_age(stores: Stores, marker: Deployment) -> None:
    """Raise OutdatedStore if the record is older than the inventory, whose marker is `marker`."""
    _compare_jobs(stores)
    _compare_mark(stores, marker.mark)


def _compare_mark(stores: Stores, mark: int) -> None:
    """Compare with the record as it is now: the marks may be incremented between two reads."""
    record = stores.record.read_deployment()
    if record is None or record.mark < mark:
        evidence = f"its mark is {record.mark if record else 'gone'}, but {mark} was seen"
        raise outdated(Service.RECORD, stores.record.place, evidence)


def _compare_jobs(stores: Stores) -> None:
    entered = stores.inventory.last_job()
    assigned = last_job(stores.record.session)  # read last: a job may be created and entered between the two
    if entered > assigned:
        evidence = f"its last job number is {assigned}, but the inventory has job number {entered}"
        raise outdated(Service.RECORD, stores.record.place, evidence)


def _identify(stores: Stores) -> Deployment:
    """The id for a record without one: new if all stores are empty, else that of stores that agree."""
    deployment = _agreed(stores.kept).model_copy(update={"mark": 0})
    check_not_lost(stores)
    for store in stores.kept:
        if has_stored_jobs(stores.record.session) and store.is_empty():
            raise absent(store.service, store.place)
    _compare_jobs(stores)
    _compare_versions(stores)
    _write_missing(stores, deployment)
    return deployment


def _agreed(stores: Iterable[Store]) -> Deployment:
    """The id of the stores, with the newest mark, or a new one; ServiceDown if two ids differ."""
    marked = [(store, marker) for store in stores if (marker := store.read_deployment())]
    deployment = max((marker for _, marker in marked), key=lambda marker: marker.mark, default=Deployment())
    for store, marker in marked:
        if marker.id != deployment.id:
            raise foreign(store.service, store.place, marker, deployment.id)
    return deployment


def check_not_lost(stores: Stores) -> None:
    """ServiceDown(record) if the record is empty and another store is not."""
    for store in stores.kept:
        if stores.record.is_empty() and not store.is_empty():
            raise ServiceDown(
                Service.RECORD,
                f"the record {stores.record.place} is empty, but {NAMES[store.service]} {store.place} is "
                f"not: {WHERE[Service.RECORD]}; if the record is lost, initialize a new one",
            )


def _compare_versions(stores: Stores) -> None:
    storage = stores.storage
    for ark, jid in stores.inventory.newest_versions(SAMPLE) if storage else ():
        if storage is not None and not storage.has_version(ark, jid):
            raise ServiceDown(
                Service.STORAGE,
                f"the inventory {stores.inventory.place} has {ark} from job {jid}, but the storage root "
                f"{storage.place} does not: {WHERE[Service.STORAGE]}",
            )


def _write_missing(stores: Stores, deployment: Deployment) -> None:
    """Give the id to every store without one; to the record last.

    No store loses an id that it has, and each is read again: a process that was frozen here, and has lost
    the lock meanwhile, stops at the first store that has got another id. What such a process has written to
    storage is made durable first.
    """
    for store in stores.every:
        if store is stores.storage or store.read_deployment() is None:
            store.write_deployment(deployment)
        check_marker(store.service, store.place, store.read_deployment(), deployment.id)


def join_missing(stores: Stores) -> None:
    """Give the deployment's id to every store without one; a store that does not exist is created, empty.

    For an operator who knows that a lost store will not come back, or that an older store belongs here. An
    empty inventory is marked as an older copy, which is not used until its entries are rebuilt from storage.
    ServiceDown if two stores belong to different deployments.
    """
    deployment = _agreed(stores.every)
    session = stores.record.session
    counters.raise_to(session, "job", stores.inventory.last_job())
    newer = deployment
    if _lacks_entries(stores):
        newer = deployment.model_copy(update={"mark": deployment.mark + OLDER})
        if read(session) is not None:  # first: a crash must not leave an empty inventory with its mark
            raise_mark(session, newer.mark)
        stores.inventory.write_deployment(deployment)
    _write_missing(stores, newer)


def _lacks_entries(stores: Stores) -> bool:
    """Whether the inventory has no id yet, and is empty although objects were stored."""
    if stores.inventory.read_deployment() is not None or not stores.inventory.is_empty():
        return False
    stored = stores.storage is not None and not stores.storage.is_empty()
    return stored or has_stored_jobs(stores.record.session)


TIMEOUT = 2.0
"""Seconds to wait for a server to accept a connection, and again for the session to open."""


def read_if_reachable(settings: Settings) -> Deployment | None:
    """The deployment; None if the record has no id. Unreachable if ZooKeeper does not answer soon."""
    if not any(_accepts(*server) for server in settings.zk_servers):  # kazoo would try until the time is up
        raise Unreachable(f"ZooKeeper at {settings.zk_hosts} does not answer")
    with connect(settings, TIMEOUT, create=False) as session:
        return read(session)


def _accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), TIMEOUT).close()
    except OSError:
        return False
    return True
