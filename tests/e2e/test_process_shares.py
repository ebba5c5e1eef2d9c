"""A submitter whose downloads or splits have every process delays nobody for longer than some seconds."""

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BATCH, BatchState, JobState
from tests.e2e.collection import body_of, submit
from tests.servers.hostile_source import HostileSource
from tests.servers.http_source import HttpSource
from tests.support.fleet import LIMIT, Fleet, batch_ended, wait_for, wait_for_split
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.record import batches, jobs

SIZE = 60_000_000
"""At 100 kB/s a download lasts ten minutes."""


def test_a_deposit_completes_while_long_downloads_of_another_submitter_have_every_process(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker(concurrency=2)
    fleet.worker("control", 1, queues="control,split")
    fleet.beat()
    body, long = body_of("long", SIZE), list[str]()

    def downloading() -> list[str]:
        states = {jid: jobs.load(session, jid).status.status for jid in long}
        return [jid for jid, state in states.items() if state is JobState.DOWNLOADING]

    for number in range(4):
        url = source.put(f"/long{number}", body, piece=10_000, pause=0.1)
        bid = submit(session, settings, url, SubmissionType.FILE, owner="token:many")
        wait_for_split(session, bid)
        long += batches.all_jobs(session, bid)
    # not always the first two: the control worker splits beside the other one
    nodes = [paths.job_status(jid) for jid in long]
    wait_for(session, nodes, lambda: len(downloading()) == 2, LIMIT, lambda: str(downloading()))

    url = source.put("/a.txt", body_of("a"))
    other = submit(session, settings, url, SubmissionType.FILE, owner="token:one")

    assert batch_ended(session, other, timeout=180).status.status is BatchState.COMPLETED
    states = {jobs.load(session, jid).status.status for jid in long}
    assert states <= {JobState.PENDING, JobState.ESTIMATING, JobState.PROVISIONING, JobState.DOWNLOADING}
    assert all(jobs.load(session, jid).status.tries == 0 for jid in long)


def test_a_deposit_is_split_while_manifests_of_another_submitter_have_every_process(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    """They drip at the shipped limits: each is worth a minute of a process, and then the next one follows."""
    shipped = {name: getattr(Settings(), name) for name in ("backoff", "max_tries", "fetch_tries")}
    fleet.settings = settings.model_copy(update=shipped)
    fleet.worker(concurrency=1, wait=False)
    fleet.worker("split", 1, queues="split", wait=False)
    fleet.worker("control", 1, queues="control", wait=False)
    fleet.beat(wait=False)
    with HostileSource("endless-body", pause=25.0) as hostile:
        drips = [
            submit(session, settings, hostile.url, SubmissionType.BATCH_MANIFEST, owner="token:many")
            for _ in range(8)
        ]
        hostile.await_request(2, timeout=60)

        url = source.put("/a.txt", body_of("a"))
        other = submit(session, settings, url, SubmissionType.FILE, owner="token:one")

        wait_for_split(session, other)
        unsplit = [batches.load(session, bid).status for bid in drips]
        assert all(status.total is None and status.status in BATCH.working() for status in unsplit)
