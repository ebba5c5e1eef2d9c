"""Why a job or a batch is where it is, as facts: what it waits for, who has it, and what helps."""

from operations.archive import Archive, load_batch, load_job, no_archive
from operations.batch_view import archived_since
from operations.facts import Explanation, Reason
from operations.fleet import Fleet
from operations.record_fault import record_fault
from operations.why_batch import why_batch
from operations.why_job import why_job
from pipeline.errors import UsageRefused
from pipeline.outcome import Service, ServiceDown
from pipeline.records import Batch, Job
from pipeline.settings import Settings
from zkstate.errors import Corrupt, Missing
from zkstate.session import Session


def kind_of(name: str) -> str:
    """`job` or `batch`, by the form of its id."""
    for prefix, kind in (("jid", "job"), ("bid", "batch")):
        if name.startswith(prefix):
            return kind
    raise UsageRefused(f"'{name}' is neither a batch (bid0000000001) nor a job (jid0000000001)")


def why(
    session: Session,
    settings: Settings,
    name: str,
    archive: Archive = no_archive,
    fleet: Fleet | None = None,
) -> Explanation:
    """Missing if neither ZooKeeper nor the archive knows it; in the archive, `holder` removed it.

    A record that cannot be relied on is the reason of everything that is in it; ServiceDown for a name that
    is not, because another record may have it. `fleet`: what the workers answered a moment ago; they are
    asked if it is None.
    """
    fault = record_fault(session, settings)
    foreign = fault is not None and fault.reason is Reason.RECORD_FOREIGN
    try:
        asked = fleet or Fleet(session, settings)
        explanation = _explanation(session, asked, name, no_archive if foreign else archive)
    except Missing as missing:
        if fault is None:
            raise
        message = f"{name} is not in this record: {fault.message}"
        raise ServiceDown(Service.RECORD, message).with_remedies(*fault.remedies) from missing
    if fault is None or explanation.reason is Reason.ARCHIVED:
        return explanation
    return explanation.model_copy(update=dict(fault.cause))


def _explanation(session: Session, fleet: Fleet, name: str, archive: Archive) -> Explanation:
    kind = kind_of(name)
    try:
        record = load_job(session, name, archive) if kind == "job" else load_batch(session, name, archive)
        if isinstance(record, Job):
            return why_job(session, fleet, record)
        if isinstance(record, Batch):
            return why_batch(session, fleet, record)
    except Corrupt as damage:
        return Explanation(
            id=name, kind=kind, reason=Reason.RECORD_DAMAGED, message=str(damage), remedies=damage.remedies
        )
    from pipeline.inventory.archive import ArchivedJob  # the archive has loaded SQLAlchemy before

    gone = record.disposition
    return Explanation(
        id=name,
        kind=kind,
        name=record.name,
        profile=record.profile,
        state=record.state,
        since=record.since if isinstance(record, ArchivedJob) else archived_since(record, archive),
        reason=Reason.ARCHIVED,
        holder=gone.who,
        holder_since=gone.at,
        hold_reason=gone.why,
    )
