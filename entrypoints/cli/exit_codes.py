"""The exit codes of `arkline`, for scripts: the only place that gives a result or an error its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import ArklineError, ErrorKind
from pipeline.outcome import StepFailed
from pipeline.states import BatchState, FailureKind, JobState

if TYPE_CHECKING:
    from operations.custody import Custody

FAILED = 1
"""The batch or job failed, something was found, or nothing can be processed."""
REFUSED = 2
UNREACHABLE = 3
BROKEN_CUSTODY = 4
INTERRUPTED = 130
"""As a shell reports a command that Ctrl-C ended: 128 + SIGINT."""

_FAILED = (JobState.FAILED, JobState.DELETED, BatchState.FAILED, BatchState.DELETED)

_OF_KIND = {
    ErrorKind.REFUSED: REFUSED,
    ErrorKind.UNREACHABLE: UNREACHABLE,
    ErrorKind.INTERRUPTED: INTERRUPTED,
    ErrorKind.OTHER: FAILED,
}


def of_error(error: ArklineError) -> int:
    if isinstance(error, StepFailed) and error.kind is FailureKind.TRANSIENT:
        return UNREACHABLE
    return _OF_KIND[error.error_kind]


def of_state(state: JobState | BatchState) -> int:
    return FAILED if state in _FAILED else 0


def of_custody(custody: Custody) -> int:
    if not custody.agrees:
        return BROKEN_CUSTODY
    return INTERRUPTED if custody.read and not custody.complete else 0
