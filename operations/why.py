"""Why a job or a batch is where it is, as facts: what it waits for, who has it, and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operations.batch_view import archived_since
from operations.facts import Explanation, Reason
from operations.fleet import Fleet
from operations.record_fault import RecordFault, record_fault
from operations.site import Site
from operations.visibility import kind_of, sees_fleet, visible
from operations.why_batch import why_batch
from operations.why_job import why_job
from pipeline.outcome import Service, ServiceDown
from pipeline.principal import Principal
from pipeline.records import Batch, Job
from zkstate.errors import Corrupt, Missing

if TYPE_CHECKING:
    from pipeline.inventory.archive import ArchivedBatch, ArchivedJob


def why(site: Site, principal: Principal, name: str) -> Explanation:
    """Missing if neither ZooKeeper nor the archive knows it; in the archive, `holder` removed it.

    A record that cannot be relied on is the reason of everything that is in it; ServiceDown for a name that
    is not, because another record may have it. Which node cannot be read is for those who see the fleet;
    for others such a job is Corrupt.
    """
    fault = record_fault(site)
    try:
        record = visible(site, principal, name)
    except Corrupt as damage:
        if not sees_fleet(principal):
            raise
        return _seen_by(principal, _damaged(name, damage), fault)
    except (Missing, ServiceDown) as error:
        if fault is None:
            raise
        message = f"{name} is not in this record: {fault.message}"
        raise ServiceDown(Service.RECORD, message).with_remedies(*fault.remedies) from error
    return _seen_by(principal, _explanation(Fleet(site), record), fault)


def why_loaded(
    fleet: Fleet, principal: Principal, record: Job | Batch | ArchivedJob | ArchivedBatch
) -> Explanation:
    """Why this record, which the principal may see, is where it is.

    `fleet`: what the workers answered a moment ago.
    """
    return _seen_by(principal, _explanation(fleet, record), record_fault(fleet.site))


def _explanation(fleet: Fleet, record: Job | Batch | ArchivedJob | ArchivedBatch) -> Explanation:
    if isinstance(record, Job | Batch):
        try:
            return why_job(fleet, record) if isinstance(record, Job) else why_batch(fleet, record)
        except Corrupt as damage:
            return _damaged(record.id, damage)
    from pipeline.inventory.archive import ArchivedJob  # the archive has loaded SQLAlchemy before

    if isinstance(record, ArchivedJob):
        name, since = record.jid, record.since
    else:
        name, since = record.bid, archived_since(fleet.site, record)
    gone = record.disposition
    return Explanation(
        id=name,
        kind=kind_of(name),
        name=record.name,
        profile=record.profile,
        state=record.state,
        since=since,
        reason=Reason.ARCHIVED,
        holder=gone.who,
        holder_since=gone.at,
        hold_reason=gone.why,
    )


def _damaged(name: str, damage: Corrupt) -> Explanation:
    return Explanation(
        id=name,
        kind=kind_of(name),
        reason=Reason.RECORD_DAMAGED,
        message=str(damage),
        remedies=damage.remedies,
    )


def _seen_by(principal: Principal, explanation: Explanation, fault: RecordFault | None) -> Explanation:
    """The explanation, unless the record has a fault; without the jobs of others for who sees only some."""
    if fault is not None and explanation.reason is not Reason.ARCHIVED:
        explanation = explanation.model_copy(update=dict(fault.cause))
    return explanation if sees_fleet(principal) else _without_others(explanation)


def _without_others(explanation: Explanation) -> Explanation:
    changes: dict[str, object] = {"users": {}}
    if explanation.waits_for.startswith(("jid", "bid")):
        changes["waits_for"] = ""
    if explanation.first is not None:
        changes["first"] = _without_others(explanation.first)
    return explanation.model_copy(update=changes)
