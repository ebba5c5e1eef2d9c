"""The audit: whether the record is consistent, and whether storage and inventory have what it says is stored.

The digests that storage lists are compared with those of the inventory; the bytes are read only if the caller
asks for that.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import islice

from operations.reconcile_jobs import nodes_of
from operations.reconcile_versions import same_job
from pipeline.errors import UsageRefused
from pipeline.inventory import reconciling
from pipeline.inventory.reconciling import Entered
from pipeline.inventory.sql import SqlInventory
from pipeline.names import is_ark
from pipeline.outcome import DamagedObject, ServiceDown, StepFailed
from pipeline.preservation import rebuild
from pipeline.preservation.proof import Reading, prove
from pipeline.records import Job, Record, now, same_key
from pipeline.settings import Settings
from pipeline.states import JOB, JobState
from pipeline.steps.clients import open_clients
from pipeline.storage.base import Storage
from tasks.stores import expected_of
from zkstate import audit as consistency
from zkstate import audit_mark, jobs, listings
from zkstate.audit import Finding
from zkstate.audit_mark import LastAudit
from zkstate.errors import Corrupt, Missing
from zkstate.session import Session

PAGE = 200
"""Jobs that are looked up in the inventory at a time."""


class StoreProblem(StrEnum):
    """Codes are stable: scripts and alerts read them."""

    NOT_ENTERED = "not-entered"
    """The inventory lacks the version of a completed job, or the stored version of a failed one."""
    OTHER_OBJECT = "other-object"
    """The inventory has the job's version under another ARK, or from another job of this number."""
    NOT_STORED = "not-stored"
    DIFFERENT = "different"
    """Storage has the version from another job, or with other digests than the inventory."""
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"
    """The bytes do not have the digests of the inventory."""


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
    """Jobs whose version is not in storage and inventory as the record says."""
    compared: int = 0
    """Completed jobs that were compared with storage and inventory."""
    unreachable: str = ""
    """Why storage or inventory could not be compared."""
    complete: bool = True
    """False if it was interrupted."""

    @property
    def broken(self) -> bool:
        return any(finding.problem is not StoreProblem.NOT_ENTERED for finding in self.stores)


def audit(
    session: Session,
    settings: Settings,
    *,
    content: bool = False,
    on_progress: Callable[[int], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> AuditView:
    """`content`: read every byte of the versions. Stores that cannot be used are said, and no finding.

    An audit that compared everything leaves its time and the number of its findings to the metrics.
    """
    findings = consistency.audit(session)
    store_findings: list[StoreFinding] = []
    compared, unreachable = 0, ""
    names = (*listings.recorded_jobs(session), *listings.failed_jobs(session))
    if names:
        clients = open_clients(settings, expected_of(session))
        try:
            for job, entry in _jobs(session, clients.inventory, names):
                if stopped():
                    break
                if job.status.status is JobState.FAILED:
                    store_findings += _failed(settings, clients.storage, job, entry)
                    continue
                store_findings += _recorded(clients.storage, clients.inventory, job, entry, content=content)
                compared += 1
                on_progress(compared)
        except (StepFailed, UsageRefused) as fault:
            unreachable = str(fault)
    view = AuditView(
        findings=findings,
        stores=tuple(store_findings),
        compared=compared,
        unreachable=unreachable,
        complete=not stopped(),
    )
    if view.complete and not view.unreachable:
        audit_mark.publish(session, LastAudit(at=now(), findings=len(view.findings) + len(view.stores)))
    return view


def _jobs(
    session: Session, inventory: SqlInventory, names: Sequence[str]
) -> Iterator[tuple[Job, Entered | None]]:
    """The recorded and the failed jobs among those named, with their entries in the inventory."""
    rest = iter(names)
    while page := tuple(islice(rest, PAGE)):
        entered = reconciling.of_jobs(inventory, page)
        for jid in page:
            try:
                job = jobs.load(session, jid)
            except (Missing, Corrupt):
                continue  # removed meanwhile, or a finding of the record
            if job.status.status in (*JOB.after(JobState.RECORDING), JobState.COMPLETED, JobState.FAILED):
                yield job, entered.get(jid)


def _failed(settings: Settings, storage: Storage, job: Job, entry: Entered | None) -> list[StoreFinding]:
    """The version that the job stored and did not enter before it failed."""
    ark, key = job.identifiers.primary_id or "", job.configuration.key
    number, problem, detail = None, StoreProblem.NOT_ENTERED, ""
    try:
        if entry or not is_ark(ark):
            return []
        stored = rebuild.version_of(storage, ark, job.jid, key, nodes_of(settings, job))
        if stored is None:
            return []
        number = stored.number
    except DamagedObject as damage:
        problem, detail = StoreProblem.UNREADABLE, damage.message
    return [
        StoreFinding(jid=job.jid, ark=ark, version=number, problem=problem, detail=detail, job_failed=True)
    ]


def _recorded(
    storage: Storage, inventory: SqlInventory, job: Job, entry: Entered | None, *, content: bool
) -> list[StoreFinding]:
    problems = _entry(job, entry)
    if entry is None or problems:
        return problems
    return _stored(storage, inventory, entry, content=content)


def _entry(job: Job, entry: Entered | None) -> list[StoreFinding]:
    ark = job.identifiers.primary_id or ""
    if entry is None:
        return [StoreFinding(jid=job.jid, ark=ark, problem=StoreProblem.NOT_ENTERED)]
    if entry.ark != ark or not same_key(entry.key, job.configuration.key):
        return [
            StoreFinding(
                jid=job.jid,
                ark=ark,
                version=entry.number,
                problem=StoreProblem.OTHER_OBJECT,
                detail=entry.ark,
            )
        ]
    return []


def _stored(
    storage: Storage, inventory: SqlInventory, entry: Entered, *, content: bool
) -> list[StoreFinding]:
    problem, detail = _problem(storage, inventory, entry)
    if problem is None and content:
        problem, detail = _read(storage, inventory, entry)
    if problem is None:
        return []
    return [StoreFinding(jid=entry.jid, ark=entry.ark, version=entry.number, problem=problem, detail=detail)]


def _problem(storage: Storage, inventory: SqlInventory, entry: Entered) -> tuple[StoreProblem | None, str]:
    try:
        versions = storage.versions_of(entry.ark, entry.url)
    except ServiceDown:
        raise
    except StepFailed as failure:
        return StoreProblem.UNREADABLE, failure.message
    stored = next((version for version in versions if version.number == entry.number), None)
    if stored is None:
        return StoreProblem.NOT_STORED, ""
    if not same_job(entry, stored):
        return StoreProblem.DIFFERENT, stored.jid
    known = reconciling.digests_of(inventory, entry)
    differing = [
        path for path in sorted({*known, *stored.digests}) if known.get(path) != stored.digests.get(path)
    ]
    return (StoreProblem.DIFFERENT, differing[0]) if differing else (None, "")


def _read(storage: Storage, inventory: SqlInventory, entry: Entered) -> tuple[StoreProblem | None, str]:
    known = inventory.describe_object(entry.ark)
    if known is None:
        return StoreProblem.OTHER_OBJECT, ""
    custody = prove(known, (entry.number,), storage, Reading())
    problems = [problem for file in custody.files for problem in file.problems]
    return (StoreProblem.DAMAGED, problems[0].what) if problems else (None, "")
