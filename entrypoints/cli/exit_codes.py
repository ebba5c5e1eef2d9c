"""The exit codes of `arkline`, for scripts: the only module that maps results and errors to numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.codes import ErrorKind
from pipeline.errors import ArklineError
from pipeline.states import BATCH, JOB, BatchState, JobState

if TYPE_CHECKING:
    from operations.checks.aliases import AuditView
    from operations.checks.check import CheckView
    from operations.doctor.line import Examination
    from operations.objects.fixity import FixityRun
    from operations.objects.recheck import RecheckRun
    from operations.verbs.bulk import Outcome
    from pipeline.preservation.custody import Custody

FAILED = 1
"""The batch or job failed, there are findings, or nothing can be processed."""
REFUSED = 2
UNREACHABLE = 3
BROKEN_CUSTODY = 4
INTERRUPTED = 130
"""The code that a shell reports after Ctrl-C: 128 + SIGINT."""
UNREAD = 141
"""The code that a shell reports when the reader of the output ends first, as `head` does: 128 + SIGPIPE."""

_FAILED = (*JOB.where(lambda facts: facts.failed), *BATCH.where(lambda facts: facts.failed))

OF_KIND = {
    ErrorKind.REFUSED: REFUSED,
    ErrorKind.UNREACHABLE: UNREACHABLE,
    ErrorKind.DAMAGED: BROKEN_CUSTODY,
    ErrorKind.INTERRUPTED: INTERRUPTED,
    ErrorKind.OTHER: FAILED,
}


def of_error(error: ArklineError) -> int:
    return OF_KIND[error.error_kind]


def of_state(state: JobState | BatchState) -> int:
    return FAILED if state in _FAILED else 0


def of_outcome(outcome: Outcome) -> int:
    """Exit code of a verb: 1 if anything was refused, untried or incomplete, 3 if a service did not
    answer."""
    complete = not (outcome.refused or outcome.untried) and all(result.complete for result in outcome.done)
    return UNREACHABLE if outcome.stopped else int(not complete)


def of_custody(custody: Custody) -> int:
    if not custody.agrees:
        return BROKEN_CUSTODY
    return INTERRUPTED if custody.read and not custody.complete else 0


def of_fixity(run: FixityRun) -> int:
    if run.damaged:
        return BROKEN_CUSTODY
    if run.unreadable or run.problem:
        return UNREACHABLE
    return 0 if run.complete else INTERRUPTED


def of_recheck(run: RecheckRun) -> int:
    if run.not_checked:
        return UNREACHABLE
    if not run.complete:
        return INTERRUPTED
    return FAILED if any(one.summary.found for one in run.checked) else 0


def of_check(view: CheckView) -> int:
    if view.broken:
        return BROKEN_CUSTODY
    if view.unreachable:
        return UNREACHABLE
    if not view.complete:
        return INTERRUPTED
    return FAILED if view.left else 0


def of_examination(view: Examination) -> int:
    return 0 if view.is_fit else FAILED


def of_audit(view: AuditView) -> int:
    if view.broken:
        return BROKEN_CUSTODY
    if view.findings or view.stores:
        return FAILED
    if view.unreachable:
        return UNREACHABLE
    return 0 if view.complete else INTERRUPTED
