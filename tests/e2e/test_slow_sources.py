"""Sources that send almost nothing occupy every process for downloads, and delay no other batch."""

from contextlib import suppress

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from tests.e2e.collection import body_of, submit
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, batch_ended, job_reaches, wait_for_split
from zkstate.connection.session import Session
from zkstate.errors import Stale
from zkstate.record import batches, jobs
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock


def fail(session: Session, jid: str) -> None:
    """Fail the job as an operator would, while the feed may dispatch the job."""
    while (job := jobs.load(session, jid)).status.status is not JobState.FAILED:
        with suppress(Stale):
            jobs.move(session, job, JobMove(Event.FAIL, "operator", message="no", lock=Lock.BREAK))


def test_slow_downloads_in_every_process_delay_no_split_and_no_report(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker(concurrency=2)
    fleet.worker("control", 1, queues="control,split")
    fleet.beat()
    slow = []
    for number in range(2):
        url = source.put(f"/slow{number}", body_of("slow", 2_000_000), piece=1, pause=5)
        slow.append(submit(session, settings, url, SubmissionType.FILE))
    for bid in slow:
        wait_for_split(session, bid)
        (jid,) = batches.all_jobs(session, bid)
        job_reaches(session, jid, JobState.DOWNLOADING)
        source.await_request(f"/slow{slow.index(bid)}", times=2, timeout=60)

    other = submit(session, settings, source.put("/a.txt", body_of("a")), SubmissionType.FILE)
    wait_for_split(session, other)
    (jid,) = batches.all_jobs(session, other)
    fail(session, jid)
    batches.finish_if_ended(session, other, "test")

    assert batch_ended(session, other).status.status is BatchState.FAILED
