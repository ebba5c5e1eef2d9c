"""The results of a step: Done, Wait, or an exception that says who has to act; and the shared services."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from pipeline import causes, codes
from pipeline.causes import FailureCause
from pipeline.checks import CheckSummary
from pipeline.codes import ErrorKind
from pipeline.errors import ArklineError
from pipeline.states import Event, FailureKind


class Service(StrEnum):
    """Codes are stable: they stand in records and reports."""

    RECORD = "record"
    """ZooKeeper."""
    STORAGE = "storage"
    INVENTORY = "inventory"
    WORKING_STORAGE = "working-storage"
    UPLOADS = "uploads"
    """The folder of what depositors uploaded."""
    WORKER_HOST = "worker-host"
    """The machine of a worker: its descriptors, memory and processes."""
    IDENTIFIERS = "identifiers"
    """EZID."""
    MAIL = "mail"
    CALLBACK = "callback"
    """The receiver of a collection's callbacks."""
    CHECK = "check"
    """A check of deposited files, or its service, by name."""


REMEDIES: dict[str, str] = {
    Service.RECORD: "see to it that ZooKeeper answers and has the record of this deployment",
    Service.STORAGE: "see to it that the storage root is mounted, writable and not full, or that the storage "
    "service answers and accepts the workers' credentials",
    Service.INVENTORY: "see to it that the database answers, accepts the workers' login and can be written",
    Service.WORKING_STORAGE: "see to it that working storage is mounted and writable on every host that runs "
    "workers",
    Service.UPLOADS: "see to it that the folder of uploads (ARKLINE_UPLOADS) is mounted and writable on "
    "every host that runs workers or the web server",
    Service.WORKER_HOST: "see to it that the hosts have free file descriptors (ulimit -n, LimitNOFILE), "
    "memory and processes for their workers",
    Service.IDENTIFIERS: "see to it that EZID answers and accepts the login (ARKLINE_EZID_USER)",
    Service.MAIL: "see to it that the mail server answers and accepts the login (ARKLINE_SMTP_HOST), or that "
    "the outbox can be written",
    Service.CHECK: "see to it that the service of the check answers and that the check is installed on every "
    "host that runs workers",
    Service.CALLBACK: "ask the receiver's operators to see to it that the receiver answers, or stop the "
    "jobs: they are completed without it",
}
"""Service -> what an operator does about its outage."""


LONGEST_RETRY_AFTER = 3600.0
"""Maximum seconds for which a server's request to wait is obeyed; then the request is retried."""


class WaitKind(StrEnum):
    """Codes are stable: they stand in records and reports."""

    HOST = "host"
    """A source host: a free connection, or the end of a pause that the host asked for."""
    SERVICE = "service"
    """A shared service that is unavailable; the name is the outage's."""
    CHECK = "check"
    """A place of a check that has a limit in the fleet."""
    OBJECT = "object"
    """Another job of the same object."""
    SPACE = "space"
    """Room in working storage, for an attempt that found it full."""
    RETRY = "retry"
    """The next try after a transient fault of its own."""
    RECORD = "record"
    """Room for the jobs of a batch in ZooKeeper's memory."""
    REPAIR = "repair"
    """The repair of a znode that cannot be read."""


class WaitsFor(BaseModel):
    """What a record waits for since when; `kind` is a WaitKind, or one that only another release knows."""

    model_config = ConfigDict(frozen=True, extra="allow")
    kind: str
    name: str = ""
    since: datetime | None = None
    """None if an earlier release handed the record back."""
    listed: bool = False
    """`/waiting/JID` was created with this hand-back, and is deleted with the next dispatch or move."""


def read_earlier_release(values: Any) -> Any:
    """Convert a status from before 0.2.1: a delay meant a rate limit (`in_line`), a retry or a repair."""
    if not isinstance(values, dict) or not values.get("delay") or "waits_for" in values:
        return values
    untried = WaitKind.REPAIR if not values.get("tries") else WaitKind.RETRY
    kind = WaitKind.HOST if values.get("in_line") else untried
    return {**values, "waits_for": WaitsFor(kind=kind)}


class ObjectDescription(BaseModel):
    """Creator, title, date, and identifiers or locations, one text each.

    Fields of other releases are preserved.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    who: str = ""
    what: str = ""
    when: str = ""
    where: str = ""


class Deposited(BaseModel):
    """Files and bytes that deposits added to storage; an unchanged file adds no bytes to a new version."""

    model_config = ConfigDict(frozen=True, extra="allow")
    files: int = Field(0, ge=0, le=2**53)
    bytes: int = Field(0, ge=0, le=2**53)

    def __add__(self, other: "Deposited") -> "Deposited":
        return Deposited(files=self.files + other.files, bytes=self.bytes + other.bytes)


OBJECT_WAIT = 5.0
"""Seconds after which a job is retried that met another job of its object."""


@dataclass(frozen=True)
class Promised:
    """Bytes of working storage reserved for jobs, and the version of that number."""

    bytes: int
    version: int


@dataclass(frozen=True)
class Reservation:
    """A request for `bytes` of working storage in addition to `seen`; void if `seen` is outdated."""

    bytes: int
    seen: Promised


@dataclass(frozen=True)
class Done:
    """The step is done. Values that are not None replace the values of the job in the same transaction."""

    message: str = ""
    event: Event = Event.SUCCEED
    space_needed: int | None = None
    priority: int | None = None
    reservation: Reservation | None = None
    space_grew: bool = False
    """The job's reservation grew while the step ran."""
    remark: str | None = None
    """A note for the depositor to check, although nothing failed."""
    description: ObjectDescription | None = None
    """The description of the object as stored."""
    deposited: Deposited | None = None
    """What the version added to storage."""
    checks: tuple[CheckSummary, ...] = ()
    """What the checks that ran in the step found."""


@dataclass(frozen=True)
class Wait:
    """No failure, but the job cannot continue yet; it stays in its state and is retried."""

    reason: str


class StepFailed(ArklineError):
    code = codes.STEP_FAILED

    cause: FailureCause | None = None
    """None: it has no code of its own."""

    def __init__(self, kind: FailureKind, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        """Seconds to wait, if the server sent Retry-After."""
        self.detail = ""
        """For the log only; depositors must not see it."""
        self.checks: tuple[CheckSummary, ...] = ()
        """The runs of checks whose findings stop the job, and those of the other checks."""

    def because(self, cause: FailureCause | None) -> Self:
        """This failure, with its cause."""
        self.cause = cause
        return self

    @property
    def error_kind(self) -> ErrorKind:
        return ErrorKind.UNREACHABLE if self.kind is FailureKind.TRANSIENT else self.code.kind

    @property
    def is_tried_again(self) -> bool:
        return self.kind is FailureKind.TRANSIENT


class Mistake(StepFailed):
    """An unexpected error in the work of a job: it may be temporary, and after the last try it is ours."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureKind.SYSTEM, message)

    @property
    def is_tried_again(self) -> bool:
        return True


class DamagedObject(StepFailed):
    code = codes.DAMAGED_OBJECT


class Later(ArklineError):
    """No failure: the job is handed back to wait, and the wait does not count as a try."""

    def __init__(self, kind: WaitKind, name: str, message: str, wait: float) -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name
        self.message = message
        self.wait = wait
        """Seconds after which the work may be tried again."""


class RateLimited(Later):
    """The host of the content may not be contacted now."""

    def __init__(self, message: str, wait: float, host: str = "") -> None:
        super().__init__(WaitKind.HOST, host, message, wait)


class HostDown(RateLimited):
    """The host did not answer others a moment ago: no request was sent, so this is no try."""


class NoAnswer(StepFailed):
    """A transient fault of a source whose host was not reached, or sent nothing in time."""

    def __init__(self, message: str, fault: str, *, waited: bool) -> None:
        super().__init__(FailureKind.TRANSIENT, message)
        self.fault = fault
        """Without the URL, so that other submitters may see it."""
        self.waited = waited
        """A whole timeout has passed: the process must not wait again in this attempt."""
        self.place = ""

    def at(self, place: str) -> Self:
        """This failure, of the host and port of the URL or of a redirect's target."""
        self.place = place
        return self.because(causes.SOURCE_SILENT(host=place, fault=self.fault))


class HostGivenUp(StepFailed):
    """The host has answered nobody for as long as the tries of a job last, and the job waited as long."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(FailureKind.TRANSIENT, message)
        self.host = host
        self.cause = causes.SOURCE_SILENT(host=host)

    @property
    def is_tried_again(self) -> bool:
        return False


class OutcomeUnknown(StepFailed):
    """A transient fault after which the service may have carried out the request: it is not repeated here."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(FailureKind.TRANSIENT, message, retry_after)


class ServiceDown(StepFailed):
    """A transient fault of a shared service: the job waits until the service works, and no try is counted."""

    code = codes.SERVICE_DOWN

    def __init__(
        self,
        service: Service,
        message: str,
        retry_after: float | None = None,
        *,
        instance: str = "",
        of_host: bool = False,
    ) -> None:
        super().__init__(FailureKind.TRANSIENT, message, retry_after)
        self.cause = causes.SERVICE_DOWN(service=f"{service}:{instance}" if instance else service)
        self.service = service
        self.instance = instance
        """Identifies one of several services of this kind: the host of a callback's receiver."""
        self.of_host = of_host
        """The fault may be of this host alone: of its mounts or its settings."""


def content(message: str) -> StepFailed:
    return StepFailed(FailureKind.CONTENT, message)


def system(message: str) -> StepFailed:
    return StepFailed(FailureKind.SYSTEM, message)


def damaged(message: str) -> DamagedObject:
    return DamagedObject(FailureKind.SYSTEM, message).because(causes.STORAGE_DAMAGED())


def transient(message: str, retry_after: float | None = None) -> StepFailed:
    return StepFailed(FailureKind.TRANSIENT, message, retry_after)


@contextmanager
def caused_by(cause: FailureCause, kind: FailureKind = FailureKind.CONTENT) -> Iterator[None]:
    """Give `cause` to the failures of this kind that the block or the decorated function raises without."""
    try:
        yield
    except StepFailed as failure:
        if failure.kind is kind:
            failure.cause = failure.cause or cause
        raise


def of_object(name: str, message: str) -> Later:
    """A Later because another job or process is working on the object `name`."""
    return Later(WaitKind.OBJECT, name, message, OBJECT_WAIT)


@contextmanager
def fault_of(service: Service, instance: str = "") -> Iterator[None]:
    """Raise a transient StepFailed of the block or the decorated function as an outage of `service`.

    OutcomeUnknown is not changed: it concerns one request, whose outcome the job's next try determines.
    """
    try:
        yield
    except StepFailed as failure:
        if failure.kind is not FailureKind.TRANSIENT or isinstance(failure, OutcomeUnknown | ServiceDown):
            raise
        raise ServiceDown(service, failure.message, failure.retry_after, instance=instance) from failure


class AttemptOver(ArklineError):
    """This attempt lost its lock, or must stop: it must have no further effect."""


class Stopping(AttemptOver):
    """The worker is stopping and still holds the lock: the job is handed back, not failed."""
