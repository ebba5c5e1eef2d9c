"""The jobs of a batch as its report names them: three nodes of each, and the history of those that failed."""

from collections.abc import Iterator, Sequence

from kazoo.protocol.states import ZnodeStat

from pipeline.notify.report.compose import JobOutcome
from pipeline.records import HistoryEntry, Identifiers, JobConfiguration, JobStatus
from pipeline.states import JobState
from zkstate import codec, histories, listings, paths
from zkstate.jobs import read_parts, require_complete
from zkstate.session import Session

_PARTS = (paths.job_status, paths.configuration, paths.identifiers)


def of_batch(session: Session, bid: str) -> Iterator[JobOutcome]:
    """The jobs that are not deleted, a page at a time; Missing or Corrupt if one cannot be read."""
    for jid, answers in read_parts(session, listings.of_batch(session, bid), _PARTS):
        yield _outcome(session, jid, answers)


def _outcome(session: Session, jid: str, answers: Sequence[tuple[bytes, ZnodeStat] | None]) -> JobOutcome:
    places = [path(jid) for path in _PARTS]
    (status, _), (configuration, _), (identifiers, _) = require_complete(jid, places, answers)
    decoded = codec.decode(JobStatus, status, places[0])
    return JobOutcome(
        jid=jid,
        configuration=codec.decode(JobConfiguration, configuration, places[1]),
        identifiers=codec.decode(Identifiers, identifiers, places[2]),
        status=decoded,
        history=_history(session, jid) if decoded.status is JobState.FAILED else (),
    )


def _history(session: Session, jid: str) -> tuple[HistoryEntry, ...]:
    path = paths.history(jid)
    return histories.read(session, path, session.get(path), HistoryEntry)[0]
