"""The jobs of a batch as its report names them: three nodes of each, and the history of those that failed."""

from collections.abc import Iterator, Sequence

from kazoo.protocol.states import ZnodeStat

from pipeline.notify.report.job_outcome import JobOutcome
from pipeline.records import HistoryEntry, Identifiers, JobConfiguration, JobStatus
from pipeline.states import JobState
from zkstate import codec, histories, listings, paths
from zkstate.errors import Missing
from zkstate.jobs import LOAD_PAGE, require_complete
from zkstate.session import Session

_PARTS = (paths.job_status, paths.configuration, paths.identifiers)


def of_batch(session: Session, bid: str) -> Iterator[JobOutcome]:
    """The jobs that are not deleted, a page at a time; Missing or Corrupt if one cannot be read."""
    jids = listings.of_batch(session, bid)
    for start in range(0, len(jids), LOAD_PAGE):
        page = jids[start : start + LOAD_PAGE]
        answers = session.get_many([path(jid) for jid in page for path in _PARTS])
        for number, jid in enumerate(page):
            first = number * len(_PARTS)
            yield _outcome(session, jid, answers[first : first + len(_PARTS)])


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
    node = session.find(path)
    if node is None:
        raise Missing(f"znode {path} is missing")
    return histories.read(session, path, node, HistoryEntry)[0]
