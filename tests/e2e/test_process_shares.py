"""A submitter whose downloads have every process delays nobody for longer than some seconds."""

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from tests.e2e.collection import body_of, submit
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, batch_ended, job_reaches, wait_for_split
from zkstate import batches, jobs
from zkstate.session import Session

SIZE = 60_000_000
"""At 100 kB/s a download lasts ten minutes."""


def test_a_deposit_completes_while_long_downloads_of_another_submitter_have_every_process(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker(concurrency=2)
    fleet.worker("control", 1, queues="control,split")
    fleet.beat()
    body, long = body_of("long", SIZE), []
    for number in range(4):
        url = source.put(f"/long{number}", body, piece=10_000, pause=0.1)
        bid = submit(session, settings, url, SubmissionType.FILE, owner="token:many")
        wait_for_split(session, bid)
        long += batches.all_jobs(session, bid)
    for jid in long[:2]:
        job_reaches(session, jid, JobState.DOWNLOADING)

    url = source.put("/a.txt", body_of("a"))
    other = submit(session, settings, url, SubmissionType.FILE, owner="token:one")

    assert batch_ended(session, other, timeout=180).status.status is BatchState.COMPLETED
    states = {jobs.load(session, jid).status.status for jid in long}
    assert states <= {JobState.PENDING, JobState.ESTIMATING, JobState.PROVISIONING, JobState.DOWNLOADING}
    assert all(jobs.load(session, jid).status.tries == 0 for jid in long)
