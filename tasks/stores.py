"""Whether record, storage root and inventory belong together, as one process has confirmed it.

A process confirms its stores with every new session, when the session was connected again, and after a
shared service failed. A record that is not confirmed is not touched; a store that is not confirmed is not
used, and its jobs wait.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pipeline.attempt import UNATTENDED
from pipeline.deployment import (
    Confirmed,
    Deployment,
    ExpectedOf,
    OutdatedStore,
    Stores,
    confirm,
    outdated,
)
from pipeline.outcome import Service, ServiceDown
from pipeline.settings import Settings
from tasks.logs import log
from zkstate import deployment, locks, outages
from zkstate.deployment import RecordDeployment
from zkstate.session import Session

if TYPE_CHECKING:
    from pipeline.inventory.sql import SqlInventory

RECHECK = 5.0
"""Seconds between two comparisons while a store is not confirmed."""


def stores_of(session: Session, settings: Settings) -> Stores:
    """The three stores that the settings name; nothing is opened or created yet."""
    from pipeline.inventory.sql import open_inventory
    from pipeline.storage.factory import open_storage

    return Stores(
        RecordDeployment(session),
        open_storage(settings).deployment_store(),
        open_inventory(settings.inventory),
    )


def expected_of(session: Session) -> ExpectedOf | None:
    """The id of the record, for the stores that a command opens; None if the record has no id yet."""
    recorded = deployment.read(session)
    if recorded is None:
        return None
    return lambda _: recorded.id


def compare(session: Session, settings: Settings, known: Deployment | None = None) -> Confirmed:
    """`pipeline.deployment.confirm`; one process at a time gives a record its id."""
    stores = stores_of(session, settings)
    if deployment.read(session) is not None:
        return confirm(stores, known)
    with locks.exclusive(session, "single-flight", "deployment", UNATTENDED):
        return confirm(stores, known)


def count_up(session: Session, inventory: SqlInventory) -> None:
    """Count up the mark of the record, then that of the inventory: they differ by one at most.

    After a crash between the two, the inventory follows first.
    """
    marker = inventory.read_deployment()
    if marker is not None:
        inventory.write_deployment(deployment.raise_mark(session, marker.mark + 1))


def level_marks(session: Session, inventory: SqlInventory) -> None:
    """Give record and inventory one mark that no process has seen: work continues after a reconciliation."""
    marker, record = inventory.read_deployment(), deployment.read(session)
    mark = max(marker.mark if marker else 0, record.mark if record else 0) + 2
    inventory.write_deployment(deployment.raise_mark(session, mark))


class ConfirmedStores:
    """What one process has confirmed. Not thread-safe, except for `expected`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: Deployment | None = None
        self._faults: Mapping[Service, ServiceDown] = {}
        self._last_change = 0
        self._session: Session | None = None
        self._connections = 0
        self._compared = 0.0
        self._doubted = False
        self._logged: set[str] = set()

    def expected(self, service: Service) -> str:
        """The id that the store must have; ServiceDown if it must not be used, or none was confirmed."""
        if service in self._faults:
            raise self._faults[service]
        if self._known is None:
            raise ServiceDown(Service.RECORD, "no deployment is confirmed yet: the session is not open")
        return self._known.id

    @property
    def id(self) -> str:
        """The id that was confirmed last; empty if none was."""
        return self._known.id if self._known else ""

    @property
    def faults(self) -> Collection[Service]:
        """The stores that must not be used now."""
        return self._faults.keys()

    def doubt(self) -> None:
        """Compare the stores again before the next work."""
        self._doubted = True

    def confirm(self, session: Session) -> None:
        """ServiceDown(record) unless the record may be worked on; faults of the others are kept."""
        if not self._is_due(session):
            return
        try:
            confirmed = compare(session, self._settings, self._known)
            self._compare_changes(session, confirmed.deployment)
        except OutdatedStore as fault:
            outages.report(session, fault, socket.gethostname())
            raise
        self._session, self._connections = session, session.connections
        self._compared, self._doubted = time.monotonic(), False
        self._known, self._faults = confirmed.deployment, confirmed.faults
        for down in confirmed.faults.values():
            outages.report(session, down, socket.gethostname())
            self.log_once(down)
        if not confirmed.faults:
            self._logged.clear()

    def log_once(self, fault: ServiceDown) -> None:
        """Log a fault unless it is the one that was logged last."""
        if fault.message not in self._logged:
            self._logged = {fault.message}
            log().error("a shared service cannot be used", service=str(fault.service), error=fault.message)

    def _is_due(self, session: Session) -> bool:
        if session is not self._session or session.connections != self._connections or self._doubted:
            return True
        return bool(self._faults) and time.monotonic() - self._compared > RECHECK

    def _compare_changes(self, session: Session, record: Deployment) -> None:
        """Within one mark, ZooKeeper's own number of the last change tells that the record went back."""
        if self._session is not None:
            self._last_change = max(self._last_change, self._session.last_change)
        same_mark = self._known is not None and self._known.mark == record.mark
        if same_mark and session.last_change < self._last_change:
            evidence = f"its last change is {session.last_change:#x}, but {self._last_change:#x} was seen"
            raise outdated(Service.RECORD, f"{session.hosts}{session.root}", evidence)
        self._last_change = session.last_change
