"""Deposits without a pause while a fleet changes, and what must be true of all of them at the end."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pipeline import humanize
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, JobState
from tests.e2e.collection import deposit
from tests.e2e.test_pipeline import rows
from tests.servers.http_source import HttpSource
from tests.support.fleet import batch_ended, quiet
from tests.support.ocfl_fixture import invalid_objects
from tests.support.outbox import letters
from zkstate.connection.session import Session
from zkstate.record import batches, jobs

PAUSE = 1.0
"""Seconds between two batches."""


@dataclass
class Load:
    session: Session
    settings: Settings
    source: HttpSource
    objects: int = 3
    """Objects of a batch."""
    bids: list[str] = field(default_factory=list)

    def deposit(self) -> str:
        bid = deposit(self.session, self.settings, self.source, self.objects)
        self.bids.append(bid)
        return bid

    def ended(self, timeout: float = 120.0) -> list[Job]:
        """All jobs, once their batches have ended; each is stored, recorded and reported once."""
        for bid in self.bids:
            batch = batch_ended(self.session, bid, timeout)
            assert batch.status.status is BatchState.COMPLETED, batch.status.message
        quiet(self.session)
        ended = [
            jobs.load(self.session, jid) for bid in self.bids for jid in batches.all_jobs(self.session, bid)
        ]
        number = self.objects * len(self.bids)
        assert len(ended) == number
        assert len(list(self.settings.storage.rglob("0=ocfl_object_1.1"))) == number
        assert invalid_objects(self.settings.storage) == []
        for table in ("inv_objects", "inv_versions", "inv_ingests"):
            assert rows(self.settings, f"select count(*) from {table}") == [(number,)]
        assert self.reports() == dict.fromkeys(self.bids, 1), sorted(
            str(letter["Subject"]) for letter in letters(self.settings)
        )[:20]
        for job in ended:
            assert (job.status.tries, job.status.redispatches, job.status.retry_count) == (0, 0, 0), job
            assert [entry.state for entry in job.history] == [*JOB.working(), JobState.COMPLETED], job
        return ended

    def reports(self) -> dict[str, int]:
        """BID -> the reports that were mailed of it."""
        subjects = Counter(str(letter["Subject"]) for letter in letters(self.settings))
        return {bid: sum(map(subjects.__getitem__, self._subjects(bid))) for bid in self.bids}

    def _subjects(self, bid: str) -> tuple[str, str]:
        """The subject of a report, up to 0.3.0 and since."""
        name = batches.load(self.session, bid).submission.name
        return (
            f"Ingest: OK -- Submission Processed: {bid}",
            f"demo: {humanize.counted(self.objects, 'object')} stored ({name})",
        )


@contextmanager
def under_load(session: Session, settings: Settings, source: HttpSource) -> Iterator[Load]:
    """Batches are deposited until the block ends."""
    load, stopped, failures = Load(session, settings, source), threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not stopped.wait(PAUSE):
                load.deposit()
        except BaseException as error:  # noqa: BLE001 - raised where the block ends
            failures.append(error)

    thread = threading.Thread(target=run, name="load")
    thread.start()
    try:
        yield load
    finally:
        stopped.set()
        thread.join()
    assert not failures, failures
