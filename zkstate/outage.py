"""One outage of a shared service, as its node in ZooKeeper has it."""

from datetime import datetime

from pydantic import Field

from pipeline.outcome import ServiceDown
from pipeline.records import RewrittenRecord, now

FIRST_PROBE = 5.0
"""Seconds before the first probe; doubled for every further one."""

LONGEST_PAUSE = 60.0
"""Maximum seconds between two probes, unless the service asked for more."""

MAX_REQUESTED = 3600.0
"""Maximum seconds between two probes, whatever the service asked for."""

IDLE = 60.0
"""Seconds after a probe was due, and nothing made it, after which nothing waits for the service."""

HOST_IDLE = 3600.0
"""The same for an outage of single hosts, which no sweep probes: such a host is idle, or was taken away."""


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
    retry_after: float = 0
    """Seconds that the service asked for."""
    probes: int = 0
    notified: bool = False
    """The operator was sent a mail."""
    ended: datetime | None = None

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
    """Seconds before the next probe, after so many that failed."""
    pause: float = min(FIRST_PROBE * 2 ** min(probes, 10), LONGEST_PAUSE)
    return pause


def outage_name(service: str, instance: str = "") -> str:
    return f"{service}:{instance}" if instance else service


def name_of(fault: ServiceDown) -> str:
    return outage_name(fault.service, fault.instance)
