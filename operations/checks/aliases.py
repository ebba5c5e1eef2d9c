"""The documents of `audit` and `reconcile`, the older names of `check`."""

from collections import Counter

from pydantic import Field

from operations.checks.check import CheckView
from operations.checks.differences import StoreProblem
from pipeline.records import Record
from zkstate.care.audit import Finding

_WITHOUT_ENTRY = (StoreProblem.LOST, StoreProblem.UNDESCRIBED)
"""Findings that an audit reports as a version missing from the inventory."""
_NOT_BROKEN = (StoreProblem.NOT_ENTERED, StoreProblem.INCONSISTENT)


class StoreFinding(Record):
    jid: str
    ark: str
    version: int | None = None
    problem: StoreProblem
    detail: str = ""
    job_failed: bool = False
    """The job stored its version and failed before it entered it: a resume enters it."""


class AuditView(Record):
    findings: tuple[Finding, ...]
    """Inconsistencies of the record."""
    stores: tuple[StoreFinding, ...] = ()
    """Jobs whose version is not in storage and inventory as the record says; LISTED with the findings."""
    counts: dict[StoreProblem, int] = Field(default_factory=dict)
    """Of all, also of those that are not listed."""
    compared: int = 0
    """Completed jobs that were compared with storage and inventory."""
    unreachable: str = ""
    """Why storage or inventory could not be compared."""
    complete: bool = True
    """False if it was interrupted."""

    @property
    def broken(self) -> bool:
        return any(gap not in _NOT_BROKEN for gap, count in self.counts.items() if count)


class ReconcileView(CheckView):
    """A check without the inconsistencies of the record."""


def _old(gap: StoreProblem) -> StoreProblem:
    return StoreProblem.NOT_ENTERED if gap in _WITHOUT_ENTRY else gap


def audit_view(view: CheckView) -> AuditView:
    """A check as an audit; `view`: a check of the jobs, or of the record alone."""
    inconsistent = [finding for finding in view.differences if finding.gap is StoreProblem.INCONSISTENT]
    counts = Counter[StoreProblem]()
    for gap, count in view.counts.items():
        counts[_old(gap)] += count
    return AuditView(
        counts=counts,
        findings=tuple(Finding(path=finding.path, problem=finding.reason) for finding in inconsistent),
        stores=tuple(
            StoreFinding(**dict(finding), problem=_old(finding.gap), detail=finding.reason)
            for finding in view.differences
            if finding.gap is not StoreProblem.INCONSISTENT
        ),
        compared=view.compared,
        unreachable=view.unreachable,
        complete=view.complete,
    )


def reconcile_view(view: CheckView) -> ReconcileView:
    """A check as a reconciliation; `view`: a check of everything."""
    values = dict(view)
    for name in ("counts", "repaired"):
        values[name] = {gap: count for gap, count in values[name].items() if gap != StoreProblem.INCONSISTENT}
    consistent = tuple(
        finding for finding in view.differences if finding.gap is not StoreProblem.INCONSISTENT
    )
    return ReconcileView(**{**values, "differences": consistent})
