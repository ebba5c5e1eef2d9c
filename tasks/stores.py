"""Conditions for a process to take messages: stores that belong together, and a prefix of its own in Redis.

A process confirms its stores with every new session, after the session was reconnected, and after a shared
service failed. A record that is not confirmed is not touched; a store that is not confirmed is not used, and
its jobs wait.

Two deployments with the same prefix in Redis would consume each other's messages. A key there holds the id of
the prefix's owner. The record says whether this deployment owns the prefix; the key only makes others wait,
and is set again if it is lost or changed.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from pipeline.attempt import UNATTENDED
from pipeline.deployment import Deployment, ExpectedOf, OutdatedStore, outdated
from pipeline.errors import ArklineError, UsageRefused
from pipeline.inventory import sql
from pipeline.outcome import Service, ServiceDown
from pipeline.settings import Settings
from pipeline.storage import factory
from pipeline.working_storage import mount
from tasks.logs import log
from tasks.redis_keys import client
from zkstate.care import deployment
from zkstate.care.deployment import Confirmed, RecordDeployment, Stores, confirm
from zkstate.connection import locks
from zkstate.connection.session import Session
from zkstate.fleet import outages
from zkstate.record import space

if TYPE_CHECKING:
    from pipeline.inventory.sql import SqlInventory

RECHECK = 5.0
"""Seconds between two comparisons while a store is not confirmed."""


def stores_of(session: Session, settings: Settings) -> Stores:
    """The three stores that the settings name; nothing is opened or created yet."""
    return Stores(
        RecordDeployment(session),
        factory.open_storage(settings).deployment_store(),
        sql.open_inventory(settings.inventory),
    )


def expected_of(session: Session) -> ExpectedOf | None:
    """The id of the record, for the stores that a command opens; None if the record has no id yet."""
    recorded = deployment.read(session)
    if recorded is None:
        return None
    return lambda _: recorded.id


def compare(session: Session, settings: Settings, known: Deployment | None = None) -> Confirmed:
    """Call `deployment.confirm`; only one process at a time gives a record its id."""
    stores = stores_of(session, settings)
    if deployment.read(session) is not None:
        return confirm(stores, known)
    with locks.exclusive(session, "single-flight", "deployment", UNATTENDED):
        return confirm(stores, known)


def count_up(session: Session, inventory: SqlInventory) -> None:
    """Increment the mark of the record, then that of the inventory: they differ by one at most.

    After a crash between the two, the inventory catches up first.
    """
    marker = inventory.read_deployment()
    if marker is not None:
        inventory.write_deployment(deployment.raise_mark(session, marker.mark + 1))


def level_marks(session: Session, inventory: SqlInventory) -> None:
    """Set record and inventory to a mark that no process has seen: work continues after a reconciliation."""
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
        """Within one mark, a lower zxid of ZooKeeper's last change shows that the record went back."""
        if self._session is not None:
            self._last_change = max(self._last_change, self._session.last_change)
        same_mark = self._known is not None and self._known.mark == record.mark
        if same_mark and session.last_change < self._last_change:
            evidence = f"its last change is {session.last_change:#x}, but {self._last_change:#x} was seen"
            raise outdated(Service.RECORD, f"{session.hosts}{session.root}", evidence)
        self._last_change = session.last_change


PAUSE = 2.0
"""Seconds between two tries."""

CLAIM_CHECK = 5.0
"""Seconds between two checks of the claim of the prefix, while a worker runs."""

LEFT_FOR = 2 * CLAIM_CHECK
"""Seconds for which another deployment's prefix has to be free: its workers set a lost key again."""

_NO_ID = "no worker has given the record its deployment id yet"


def confirmed_id(settings: Settings, session: Session) -> str:
    """The id of this deployment, after a comparison of its stores; ArklineError says what is wrong."""
    stores = ConfirmedStores(settings)
    stores.confirm(session)
    mount.note_mark(settings, space.WorkingStorage(session))
    return stores.id


def recorded_id(session: Session) -> str:
    """The id in the record; empty if no worker has given it one yet."""
    recorded = deployment.read(session)
    return recorded.id if recorded else ""


def await_claim(
    settings: Settings,
    opened: Callable[[], AbstractContextManager[Session]],
    own_id: Callable[[Session], str],
) -> str:
    """Wait until `own_id` gives an id, and that deployment owns the prefix in Redis; returns the id.

    Each reason for waiting is logged once.
    """
    waiting = threading.Event()  # never set: a signal ends the process
    logged = ""
    left = 0.0
    while True:
        problem = _NO_ID
        try:
            with opened() as session:
                if own := own_id(session):
                    holder = _claim(settings, session, own, left)
                    if holder == own:
                        return own
                    problem = claimed_by_other(settings, holder, own) if holder else logged
                    left = time.monotonic() + LEFT_FOR if holder else left
        except UsageRefused:
            raise  # a setting is wrong: the process ends
        except (ArklineError, redis.RedisError) as error:
            problem = str(error)
        if problem != logged:
            write = log().info if problem is _NO_ID else log().error  # every first start waits for the id
            write("waiting before the first message", problem=problem)
            logged = problem
        waiting.wait(PAUSE)


def _claim(settings: Settings, session: Session, own: str, left: float) -> str:
    """Claim the prefix; returns the id of its owner. The record takes precedence over the key in Redis.

    Empty if the prefix is free, but its last owner's workers may claim it again until `left`.
    """
    if is_ours(settings, deployment.read(session)):
        claim_again(settings, own)
        return own
    holder = owner(settings) if time.monotonic() < left else claim(settings, own)
    if holder == own:
        note_ours(settings, session)
    return holder


def keep_claim(settings: Settings, own: str, stopped: threading.Event) -> None:
    """Set the key again when it is lost or changed, while a worker runs: the prefix is this deployment's."""

    def keep() -> None:
        while not stopped.wait(CLAIM_CHECK):
            try:
                had = claim_again(settings, own)
            except redis.RedisError:
                continue  # the consumer waits for Redis too
            if had != own:
                error = claimed_by_other(settings, had, own)
                log().error("the prefix in Redis was claimed by another; claimed again", error=error)

    threading.Thread(target=keep, name="claim", daemon=True).start()


def say_ready() -> None:
    """Touch the file that the process which started this one waits for."""
    if ready := os.environ.get("ARKLINE_READY_FILE"):
        Path(ready).touch()


_ID = re.compile(rb"[0-9a-f]{32}")

_CLAIM = """
local held = redis.pcall('GET', KEYS[1])
if type(held) ~= 'string' or #held ~= 32 or held:find('[^0-9a-f]') then
  redis.call('SET', KEYS[1], ARGV[1])
  return ARGV[1]
end
return held
"""
"""Takes the key unless it holds a deployment id: any other value does not count as a claim."""


def claim_key(settings: Settings) -> str:
    return f"{settings.broker_prefix}deployment"


def claim(settings: Settings, own: str) -> str:
    """Claim the prefix unless it is claimed; returns the id of its owner. Raises redis.RedisError."""
    holder: bytes = client(settings).eval(_CLAIM, 1, claim_key(settings), own)
    return holder.decode()


def claim_again(settings: Settings, own: str) -> str:
    """Set the key to this deployment, which owns the prefix; returns its old id. Raises redis.RedisError."""
    had = claim(settings, own)
    if had != own:
        client(settings).set(claim_key(settings), own)
    return had


def owner(settings: Settings) -> str:
    """The id of the deployment that claimed the prefix; empty if none did. Raises redis.RedisError."""
    try:
        value = client(settings).get(claim_key(settings))
    except redis.ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        return ""
    return value.decode() if isinstance(value, bytes) and _ID.fullmatch(value) else ""


def is_ours(settings: Settings, recorded: Deployment | None) -> bool:
    """Whether the record says that its deployment owns the prefix."""
    return recorded is not None and recorded.broker == _place(settings)


def note_ours(settings: Settings, session: Session) -> None:
    """Note in the record that this deployment owns the prefix."""
    deployment.note_broker(session, _place(settings))


def claimed_by_other(settings: Settings, claimed_by: str, own: str) -> str:
    return (
        f"the prefix {settings.broker_prefix} in Redis at {_address(settings)} belongs to deployment "
        f"{claimed_by}, not to {own}: set ARKLINE_BROKER_PREFIX to a prefix that no other "
        f"deployment uses, or delete the key {claim_key(settings)} if that deployment is gone"
    )


def _place(settings: Settings) -> str:
    """The database and the prefix, without a password."""
    database = client(settings).connection_pool.connection_kwargs.get("db") or 0
    return f"{_address(settings)}/{database} {settings.broker_prefix}"


def _address(settings: Settings) -> str:
    server = client(settings).connection_pool.connection_kwargs
    return f"{server.get('host')}:{server.get('port')}"
