"""Waits until every batch has ended; resumes once, as an operator would, jobs that failed by a fault."""

import threading
from collections.abc import Iterator

from pipeline.errors import ArklineError
from pipeline.records import Batch, Job
from pipeline.settings import Settings
from pipeline.states import BATCH, BatchState, Bucket, Event, FailureKind, JobState
from tasks.retention import orphans
from tools.chaos.background import SecondBeat, Submitter
from tools.chaos.operator import OperatorThread
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.errors import Missing
from zkstate.record import batches, jobs
from zkstate.record.batches import BatchMove
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

READ_INTERVAL = 0.5
"""Seconds between two reads."""


class Quiet:
    """A thread with its own session; `reached` is set when all work has ended."""

    def __init__(
        self, settings: Settings, submitter: Submitter, operator: OperatorThread, beat: SecondBeat
    ) -> None:
        self._settings = settings
        self._submitter = submitter
        self._operator = operator
        self._beat = beat
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="quiet")
        self._asked_again: set[str] = set()
        self.reached = threading.Event()
        self.resumed: list[str] = []
        self.state = "nothing was read yet"
        """The open work, in words."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(40)

    def _run(self) -> None:
        while not self._over.is_set() and not self.reached.is_set():
            try:
                with connect(self._settings) as session:
                    while not self._over.wait(READ_INTERVAL):
                        if self._read(session):
                            self.reached.set()
                            return
            except ArklineError as error:
                self.state = str(error)

    def _read(self, session: Session) -> bool:
        if not (self._submitter.done and self._operator.idle):
            self.state = "some deposits are not submitted, or some acts are not done"
            return False
        known = list(self._batches(session))
        busy = [batch.bid for batch in known if batch.status.status in BATCH.working()]
        if busy:
            self.state = f"{len(busy)} batches are being processed: {', '.join(busy[:5])}"
            return False
        waiting = [batch for batch in known if not self._is_over(session, batch)]
        if waiting:
            self.state = f"{len(waiting)} failed batches wait for their resumed jobs"
            return False
        return self._is_clean(session)

    def _is_clean(self, session: Session) -> bool:
        left = session.exists(paths.queue(JobState.COMPLETED))
        if left is not None and left.numChildren:
            self.state = f"{left.numChildren} completed jobs are not cleaned up"
            self._beat.ask("clean_up_jobs")
            return False
        if folders := orphans(session, self._settings.working):
            # a worker may die, or working storage be unmounted, when a job completes or is deleted
            self.state = f"{len(folders)} folders of jobs that need none are not removed"
            self._beat.ask("clean_up_jobs")
            return False
        if owed := session.children(paths.CALLBACKS):
            self.state = f"{len(owed)} failure callbacks are not delivered"
            self._beat.ask("sweep")
            return False
        return True

    def _batches(self, session: Session) -> Iterator[Batch]:
        """All submitted batches, without those that the operator has deleted."""
        for bid in sorted({*self._submitter.bids.values(), *session.children(paths.BATCHES)}):
            try:
                yield batches.load(session, bid)
            except Missing:
                if bid not in self._operator.acts.deleted_batches:
                    raise

    def _is_over(self, session: Session, batch: Batch) -> bool:
        """Resume a failed batch's jobs once; when they have ended, send the depositor an updated report."""
        if batch.status.status is not BatchState.FAILED:
            return True
        if batch.bid not in self._asked_again:
            failed = [jobs.load(session, jid) for jid in batches.jobs_in(session, batch.bid, Bucket.FAILED)]
            resumable = [job for job in failed if job.status.kind is not FailureKind.CONTENT]
            if batch.bid in self._operator.acts.cancelled:
                resumable = []
            for job in resumable:
                self._resume(session, job)
            self._asked_again.add(batch.bid)
            if resumable:
                return False
        counts = batches.counts(session, batch.bid)
        if counts[Bucket.PROCESSING]:
            return False
        # an operator may cancel the report before or after the jobs complete
        unreported = batch.report is None and counts[Bucket.COMPLETED] > 0
        reported = set(batch.report.failed_jobs) if batch.report else set()
        left = set(batches.jobs_in(session, batch.bid, Bucket.FAILED))
        unfinished = batch.report.unfinished_jobs if batch.report else ()
        if not unreported and not unfinished and reported == left:
            return True
        batches.move(session, batch, BatchMove(Event.UPDATE_REPORT, "operator", lock=Lock.FREE))
        return False

    def _resume(self, session: Session, job: Job) -> None:
        jobs.move(
            session, job, JobMove(Event.RESUME, "operator", message="the faults are over", lock=Lock.FREE)
        )
        self.resumed.append(job.jid)
