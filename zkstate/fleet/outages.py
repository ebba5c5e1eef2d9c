"""Outages of shared services, as the whole fleet sees them.

While an outage blocks, jobs that need the service are not started, except one probe when it is due. The first
probe that succeeds ends the outage. An outage that ended is forgotten once QUIET seconds passed without a
relapse, so that a service that comes and goes has one outage and one notice.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.protocol.states import ZnodeStat
from pydantic import Field

from pipeline.deployment import OutdatedStore
from pipeline.outcome import ServiceDown
from pipeline.records import RewrittenRecord, now
from zkstate import codec, paths
from zkstate.connection import remembered
from zkstate.connection.clock import ServerClock
from zkstate.connection.remembered import Remembered
from zkstate.connection.session import Session
from zkstate.connection.transaction import Check, Create, Delete, Role
from zkstate.errors import Contended, Corrupt
from zkstate.record import journal
from zkstate.record.journal import JournalAction, Stamp
from zkstate.record.node import Node, log_damage

FIRST_PROBE = 5.0
"""Seconds before the first probe; the pause doubles with each probe."""

LONGEST_PAUSE = 60.0
"""Maximum seconds between two probes, unless the service asked for more."""

MAX_REQUESTED = 3600.0
"""Maximum seconds between two probes, whatever the service asked for."""

IDLE = 60.0
"""Seconds that a due probe may be outstanding; then nothing waits for the service, and the outage ends."""

HOST_IDLE = 3600.0
"""The same for an outage of single hosts, which no sweep probes: such a host is idle, or was removed."""


class Outage(RewrittenRecord):
    """`/outages/NAME`."""

    service: str
    """A code of pipeline.outcome.Service, or one that only another release knows."""
    instance: str = ""
    """Which one, of several services of this kind: the host of a callback's receiver."""
    since: datetime = Field(default_factory=now)
    message: str = ""
    hosts: tuple[str, ...] = ()
    """The hosts whose workers met the fault and have not succeeded since."""
    everywhere: bool = True
    """False once a worker of another host succeeded: only `hosts` are blocked."""
    of_host: bool = False
    """The fault may be of single hosts: of their mounts or settings."""
    outdated: bool = False
    """The store answers and is older than it was: it is to be completed, not to be made available."""
    retry_after: float = 0
    """Seconds that the service asked for."""
    probes: int = 0
    notified: bool = False
    """The operator was sent a mail."""
    ended: datetime | None = None
    unproven: bool = False
    """It ended because nothing waits for the service any more: whether that works is not known."""

    @property
    def name(self) -> str:
        return outage_name(self.service, self.instance)

    @property
    def probe_after(self) -> float:
        """Seconds between the last change of the node and the next probe."""
        return max(pause_before(self.probes), min(self.retry_after, MAX_REQUESTED))

    @property
    def idle_after(self) -> float:
        """Seconds between the last change of the node and the end of an outage that nothing waits for."""
        return self.probe_after + (IDLE if self.everywhere else HOST_IDLE)

    def blocks(self, host: str | None = None) -> bool:
        """Whether work that needs the service must not start, on any host or on `host`."""
        if self.ended is not None:
            return False
        return self.everywhere or (host in self.hosts if host else False)


def pause_before(probes: int) -> float:
    """Seconds before the next probe, after `probes` failed ones."""
    pause: float = min(FIRST_PROBE * 2 ** min(probes, 10), LONGEST_PAUSE)
    return pause


def outage_name(service: str, instance: str = "") -> str:
    return f"{service}:{instance}" if instance else service


def name_of(fault: ServiceDown) -> str:
    return outage_name(fault.service, fault.instance)


QUIET = 60.0
"""Seconds after the end of an outage within which a relapse belongs to the same outage."""

HOSTS = 50
"""Maximum hosts that an outage names; a fault that more hosts met is not limited to single hosts."""

MESSAGE_LIMIT = 1000
"""Characters of an outage's message."""


@dataclass(frozen=True)
class Known:
    """An outage as it was read."""

    outage: Outage
    stat: ZnodeStat


def known(session: Session) -> Mapping[str, Known]:
    """The outages by name; nothing is sent to ZooKeeper unless one began, changed or ended since."""
    names = remembered.children(session, paths.OUTAGES)
    read = (_read(session, f"{paths.OUTAGES}/{name}", remembered.read) for name in names)
    return {current.outage.name: current for current in read if current}


def _read(session: Session, path: str, read: Callable[..., Remembered[Outage | Corrupt]]) -> Known | None:
    """None for an unreadable outage, which is removed: whichever worker meets the fault enters it again."""
    while True:
        node = read(session, path, partial(_decoded, path))
        if node.stat is None or node.value is None:
            return None
        if isinstance(node.value, Outage):
            return Known(node.value, node.stat)
        log_damage(node.value)
        remembered.forget(session, path)
        try:
            session.ask(session.zk.delete_async, path, version=node.stat.version)
        except BadVersionError:
            continue  # somebody has written it since
        except NoNodeError:
            pass
        return None


def _decoded(path: str, data: bytes) -> Outage | Corrupt:
    try:
        return Node(path, Outage).decode(data)
    except Corrupt as damage:
        return damage


def blocking(session: Session, needed: Collection[str], host: str) -> list[Known]:
    """The outages of needed services that keep workers of `host` from starting."""
    outages = known(session)
    return [outages[name] for name in sorted(needed) if name in outages and outages[name].outage.blocks(host)]


def report(session: Session, fault: ServiceDown, host: str) -> bool:
    """Enter a fault that a worker of `host` met; True if an outage began."""
    while True:
        current = _find(session, name_of(fault))
        if current is None:
            with suppress(Contended):
                _begin(session, fault, host)
                return True
        else:
            relapsed = _met_again(current.outage, fault, host)
            if relapsed == current.outage or _put(session, current, relapsed):
                return False


def _begin(session: Session, fault: ServiceDown, host: str) -> None:
    outage = Outage(
        service=fault.service,
        instance=fault.instance,
        message=fault.message[:MESSAGE_LIMIT],
        hosts=(host,),
        of_host=fault.of_host,
        outdated=isinstance(fault, OutdatedStore),
        retry_after=fault.retry_after or 0,
    )
    path = paths.outage(outage.name)
    session.ensure_node(paths.OUTAGES)
    create = Create(path, codec.encode(outage), role=Role.SHARED)
    stamp = Stamp(by=host, reason=outage.message)
    journal.commit(session, paths.actions(None), JournalAction.OUTAGE, stamp, create, target=outage.name)
    for written in (paths.OUTAGES, path):  # that the node did not exist is remembered too
        remembered.forget(session, written)


def _met_again(outage: Outage, fault: ServiceDown, host: str) -> Outage:
    """The outage with one more host; everywhere again if a host that was not blocked met the fault."""
    hosts = outage.hosts if host in outage.hosts else (*outage.hosts, host)[-HOSTS:]
    everywhere = outage.everywhere or host not in outage.hosts
    changes: dict[str, object] = {"hosts": hosts, "everywhere": everywhere}
    outdated = isinstance(fault, OutdatedStore)
    if outage.ended is not None:
        changes |= {"ended": None, "unproven": False, "probes": 0, "everywhere": True}
    if outage.ended is not None or (outdated and not outage.outdated):
        changes |= {"outdated": outdated, "message": fault.message[:MESSAGE_LIMIT]}
    return outage.model_copy(update=changes)


def next_probe(current: Known) -> datetime:
    return datetime.fromtimestamp(current.stat.mtime / 1000 + current.outage.probe_after, UTC)


def is_due(current: Known, clock: ServerClock) -> bool:
    return _age(current, clock) > current.outage.probe_after


def _age(current: Known, clock: ServerClock) -> float:
    """Seconds since the last change of the node."""
    return (clock.now_ms() - clock.written_ms(current.stat)) / 1000


def take_probe(session: Session, current: Known, clock: ServerClock) -> bool:
    """Restart the pause before the next probe; False if none is due, or another process takes this one."""
    probed = current.outage.model_copy(update={"probes": current.outage.probes + 1})
    return is_due(current, clock) and _put(session, current, probed)


def succeeded(session: Session, name: str, host: str) -> bool:
    """End the outage because a worker of `host` used the service; True if no host is blocked any more.

    A fault that may be limited to single hosts lasts for the others that met it until each of them succeeds.
    """

    def changes(outage: Outage) -> dict[str, object]:
        others = tuple(name for name in outage.hosts if name != host)
        if outage.of_host and others:
            return {"hosts": others, "everywhere": False}
        return {"ended": now()}

    return _ends(session, name, changes)


def keep(session: Session, name: str, clock: ServerClock) -> None:
    """Keep the outage although nothing waits for it, as scheduled work found the service unavailable."""
    current = known(session).get(name)
    if current is None or current.outage.ended is not None:
        return
    if _age(current, clock) > current.outage.idle_after / 2:
        _put(session, current, current.outage)


def mark_notified(session: Session, current: Known) -> bool:
    """Note that the operator was notified; False if the outage changed meanwhile."""
    return _put(session, current, current.outage.model_copy(update={"notified": True}))


def forget_ended(
    session: Session, clock: ServerClock, by: str, before: Callable[[Outage], None] = lambda _: None
) -> list[Outage]:
    """Remove the outages that ended QUIET seconds ago, and end those that no worker meets any more.

    `before` is called for each that is about to be removed, and again after a crash.
    """
    removed = []
    for name, current in known(session).items():
        age = _age(current, clock)
        outage = current.outage
        if outage.ended is None and age > outage.idle_after:
            _put(session, current, outage.model_copy(update={"ended": now(), "unproven": True}))
        if outage.ended is None or age < QUIET:
            continue
        before(outage)
        path, stamp = paths.outage(name), Stamp(by=by, reason=outage.message)
        delete = Check(path, current.stat.version, Role.SHARED), Delete(path, role=Role.SHARED)
        try:
            journal.commit(
                session, paths.actions(None), JournalAction.OUTAGE_OVER, stamp, *delete, target=name
            )
        except Contended:  # a worker has met the fault again since it was read
            continue
        removed.append(outage)
        remembered.forget(session, paths.OUTAGES)
    return removed


def end(session: Session, name: str) -> bool:
    """End the outage for every host; False if there was none."""
    return _ends(session, name, lambda _: {"ended": now()})


def _ends(session: Session, name: str, changes: Callable[[Outage], dict[str, object]]) -> bool:
    """Change an outage that has not ended; True if the change ends it."""
    while (current := _find(session, name)) is not None and current.outage.ended is None:
        update = changes(current.outage)
        if _put(session, current, current.outage.model_copy(update=update)):
            return "ended" in update
    return False


def _find(session: Session, name: str) -> Known | None:
    return _read(session, paths.outage(name), remembered.read_anew)


def _put(session: Session, current: Known, outage: Outage) -> bool:
    """False if the node changed or went since it was read."""
    node = Node(paths.outage(outage.name), Outage)
    try:
        return node.replace(session, current.stat.version, outage)
    finally:
        remembered.forget(session, node.path)  # the watch fires for this session too, but in another thread
