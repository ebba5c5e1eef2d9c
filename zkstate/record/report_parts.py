"""The lists of a long report: `/batches/BID/status-report` has the first ids, nodes beside it the others.

Rule: the parts are written under the batch's fence before the report that names them. A crash in between
leaves parts that no report names; the next long report of the batch removes them.
"""

from collections.abc import Iterator

from pipeline.records import Batch, Record, StatusReport
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Check, Create, Delete, Put, commit
from zkstate.errors import Missing

PART_JOBS = 10_000
"""Ids of jobs in one node: 160 KB."""


class _Part(Record):
    failed_jobs: tuple[str, ...] = ()
    successful_jobs: tuple[str, ...] = ()
    unfinished_jobs: tuple[str, ...] = ()


def write(session: Session, batch: Batch, report: StatusReport) -> StatusReport:
    """Write all but the first part of a long report; the report as its own node keeps it.

    Stale if another attempt has taken the batch over.
    """
    first, *others = _divided(report)
    if not others and not (batch.report and batch.report.parts):
        return report
    fence = Check(paths.batch_status(batch.bid), batch.version)
    folder = paths.report_parts(batch.bid)
    session.ensure_node(folder)
    names = tuple(f"{batch.status.reports + 1:04d}-{number:04d}" for number in range(1, len(others) + 1))
    present = set(session.children(folder))
    named = batch.report.parts or () if batch.report else ()
    for name in sorted(present - set(names) - set(named)):
        commit(session, [fence, Delete(f"{folder}/{name}")])
    for name, part in zip(names, others, strict=True):
        path, data = f"{folder}/{name}", codec.encode(part)
        commit(session, [fence, Put(path, data) if name in present else Create(path, data)])
    return report.model_copy(update={**dict(first), "parts": names or None})


def whole(session: Session, batch: Batch) -> StatusReport | None:
    """The last report with all of its ids; one more round of reads if the report has parts."""
    report = batch.report
    if report is None or not report.parts:
        return report
    places = [f"{paths.report_parts(batch.bid)}/{name}" for name in report.parts]
    read = []
    for place, node in zip(places, session.get_many(places), strict=True):
        if node is None:
            raise Missing(f"znode {place} is missing")
        read.append(codec.decode(_Part, node[0], place))
    whole = {
        outcome: tuple(jid for part in (report, *read) for jid in getattr(part, outcome))
        for outcome in _Part.model_fields
    }
    return report.model_copy(update={**whole, "parts": None})


def _divided(report: StatusReport) -> Iterator[_Part]:
    """The ids in parts, the failed jobs first."""
    ids = [(outcome, jid) for outcome in _Part.model_fields for jid in getattr(report, outcome)]
    for start in range(0, max(1, len(ids)), PART_JOBS):
        part: dict[str, list[str]] = {}
        for outcome, jid in ids[start : start + PART_JOBS]:
            part.setdefault(outcome, []).append(jid)
        yield _Part.model_validate(part)
