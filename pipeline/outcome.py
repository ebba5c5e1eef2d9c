"""The results of a step: Done, Wait, or an exception that says who has to act."""

from dataclasses import dataclass

from pipeline.errors import ArklineError
from pipeline.states import Event, FailureKind


@dataclass(frozen=True)
class Promised:
    """Bytes of working storage reserved for jobs so far, and the version of that number."""

    bytes: int
    version: int


@dataclass(frozen=True)
class Reservation:
    """Working storage asked for: `bytes` in addition to what `seen` says; void if `seen` is outdated."""

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


@dataclass(frozen=True)
class Wait:
    """No failure, but the job cannot continue yet; it stays in its state and is tried again."""

    reason: str


class StepFailed(ArklineError):
    """The step failed; a transient failure is retried before the job fails."""

    def __init__(self, kind: FailureKind, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        """Seconds to wait, if the server sent Retry-After."""


class RateLimited(ArklineError):
    """No failure: the job waits for a rate limit, and the wait does not count as a try."""

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.message = message
        self.wait = wait
        """Seconds after which the work may be tried again."""


def content(message: str) -> StepFailed:
    return StepFailed(FailureKind.CONTENT, message)


def system(message: str) -> StepFailed:
    return StepFailed(FailureKind.SYSTEM, message)


def transient(message: str, retry_after: float | None = None) -> StepFailed:
    return StepFailed(FailureKind.TRANSIENT, message, retry_after)


class AttemptOver(ArklineError):
    """This attempt lost its lock, or must stop: it must have no further effect."""


class Stopping(AttemptOver):
    """The worker is stopping and still holds the lock: the job is handed back, not failed."""
