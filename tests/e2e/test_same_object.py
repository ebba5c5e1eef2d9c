"""One object submitted many times at once has one ARK and as many versions."""

from pipeline.records import Submission, SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, FailureKind
from tests.e2e.collection import body_of, send
from tests.e2e.test_pipeline import rows
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, batch_ended, quiet
from tests.support.ocfl_fixture import invalid_objects
from zkstate.connection.session import Session
from zkstate.record import batches, jobs

TIMES = 20


def at_once(
    session: Session, settings: Settings, source: HttpSource, times: int, *, new_version: bool
) -> list[str]:
    """Batches of one object with one local id."""
    bids = []
    for number in range(times):
        submission = Submission(
            profile_name="demo",
            payload_url=source.put(f"/{number}/letter.txt", body_of(str(number))),
            type=SubmissionType.FILE,
            payload_filename="letter.txt",
            local_id=("letter-1",),
            new_version=new_version,
        )
        bids.append(batches.submit(session, submission))
    for bid in bids:
        send(settings, bid, session)
    return bids


def test_an_object_submitted_twenty_times_at_once_has_one_ark_and_twenty_versions(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker(concurrency=3)
    fleet.beat()

    bids = at_once(session, settings, source, TIMES, new_version=True)

    for bid in bids:
        assert batch_ended(session, bid, timeout=110).status.status is BatchState.COMPLETED
    quiet(session)

    arks = {jobs.load(session, j).identifiers.primary_id for b in bids for j in batches.all_jobs(session, b)}
    assert len(arks) == 1
    assert rows(settings, "select number from inv_versions order by number") == [
        (number,) for number in range(1, TIMES + 1)
    ]
    assert rows(settings, "select count(*) from inv_objects") == [(1,)]
    assert rows(settings, "select count(*) from inv_localids") == [(1,)]
    assert invalid_objects(settings.storage) == []


def test_of_several_deposits_at_once_with_one_new_local_id_one_becomes_the_object(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker(concurrency=3)
    fleet.beat()

    bids = at_once(session, settings, source, 4, new_version=False)

    ended = [batch_ended(session, bid, timeout=110).status.status for bid in bids]
    assert sorted(ended) == [BatchState.COMPLETED, *[BatchState.FAILED] * 3]
    quiet(session)
    [ark] = [str(ark) for (ark,) in rows(settings, "select ark from inv_objects")]
    assert rows(settings, "select number from inv_versions") == [(1,)]
    ids = [jid for bid in bids for jid in batches.all_jobs(session, bid)]
    failed = [job.status for jid in ids if (job := jobs.load(session, jid)).status.kind]
    assert [(status.kind, ark in status.message) for status in failed] == [(FailureKind.CONTENT, True)] * 3
    assert invalid_objects(settings.storage) == []
