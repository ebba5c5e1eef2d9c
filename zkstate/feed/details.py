"""What a list shows of a job beyond its place: read for jobs that work, are held or have failed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipeline.records import Identifiers, JobConfiguration, JobStatus, PayloadType
from pipeline.states import FailureKind, JobState
from zkstate import codec, paths
from zkstate.errors import Corrupt
from zkstate.feed.tree import PAGE
from zkstate.session import Session


@dataclass(frozen=True)
class JobDetail:
    """A job as its own znodes describe it; `waits_for` is the kind of wait, or empty."""

    jid: str
    name: str
    ark: str
    state: JobState
    since: datetime
    kind: FailureKind | None
    message: str
    waits_for: str
    bytes: int | None
    """The declared size of the payload; None if none is declared, or the payload is a manifest."""


def read_details(session: Session, jids: Sequence[str]) -> Iterator[JobDetail]:
    """The jobs that exist and can be read, in this order; the audit reports the others."""
    parts = (paths.job_status, paths.configuration, paths.identifiers)
    for start in range(0, len(jids), PAGE):
        page = jids[start : start + PAGE]
        nodes = iter(session.get_many([path(jid) for jid in page for path in parts]))
        for jid in page:
            status, configuration, identifiers = next(nodes), next(nodes), next(nodes)
            if status is None or configuration is None or identifiers is None:
                continue
            try:
                yield _detail(jid, status[0], configuration[0], identifiers[0])
            except Corrupt:
                continue


def _detail(jid: str, status_data: bytes, configuration_data: bytes, identifiers_data: bytes) -> JobDetail:
    status = codec.decode(JobStatus, status_data, paths.job_status(jid))
    configuration = codec.decode(JobConfiguration, configuration_data, paths.configuration(jid))
    identifiers = codec.decode(Identifiers, identifiers_data, paths.identifiers(jid))
    return JobDetail(
        jid=jid,
        name=configuration.name,
        ark=identifiers.primary_id or "",
        state=status.status,
        since=status.last_modification_date,
        kind=status.kind,
        message=status.message,
        waits_for=status.waits_for.kind if status.waits_for else "",
        bytes=None if configuration.payload_type is PayloadType.OBJECT_MANIFEST else configuration.size,
    )
