"""What the demo asks of arkline, and the one place that connects it."""

from dataclasses import dataclass
from typing import Protocol

from pipeline.records import Submission
from pipeline.states import BATCH, BatchState, Bucket
from tasks.dispatch import dispatch_batch
from zkstate import batches, jobs
from zkstate.session import Session

ENDED = frozenset(set(BATCH.states()) - set(BATCH.working()) - {BatchState.HELD, BatchState.DELETED})


@dataclass(frozen=True)
class Progress:
    """How far a batch is; `total` is unknown until its payload has been split."""

    bid: str
    state: BatchState
    total: int | None
    completed: int
    failed: int
    message: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED


class Repository(Protocol):
    def submit(self, submission: Submission) -> str: ...

    def progress(self, bid: str) -> Progress: ...

    def report(self, bid: str) -> list[tuple[str, ...]]:
        """A row for each job: jid, state, ARK, title, message."""


class Live:
    """The running stack."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def submit(self, submission: Submission) -> str:
        bid = batches.submit(self._session, submission)
        dispatch_batch(batches.ticket(batches.load(self._session, bid)))
        return bid

    def progress(self, bid: str) -> Progress:
        batch = batches.load(self._session, bid)
        counts = batches.counts(self._session, bid)
        return Progress(
            bid=bid,
            state=batch.status.status,
            total=batch.status.total,
            completed=counts[Bucket.COMPLETED],
            failed=counts[Bucket.FAILED],
            message=batch.status.message,
        )

    def report(self, bid: str) -> list[tuple[str, ...]]:
        found = [jobs.load(self._session, jid) for jid in batches.all_jobs(self._session, bid)]
        return [
            (
                job.jid,
                str(job.status.status),
                job.identifiers.primary_id or "",
                job.configuration.erc_what,
                job.status.message,
            )
            for job in found
        ]
