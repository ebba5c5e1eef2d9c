"""A model of every job in memory, and its comparison with the real record."""

from dataclasses import dataclass, field

import pytest
from hypothesis.stateful import invariant

from pipeline.records import Job, Ticket
from pipeline.states import JOB, Bucket, Event, FailureKind, JobState, Room, bucket
from tests.support.record_machine import RecordMachine
from zkstate import paths
from zkstate.care.audit import audit
from zkstate.connection.session import Session
from zkstate.errors import Busy, Missing, Stale
from zkstate.record import batches, jobs, record, space
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock


@dataclass
class JobModel:
    """The expected state of a job; `owner` is the worker whose attempt holds its lock."""

    jid: str
    bid: str
    state: JobState = JobState.PENDING
    last: JobState | None = None
    kind: FailureKind | None = None
    epoch: int = 1
    fed: bool = False
    owner: int | None = None
    needed: int = 0
    promised: int | None = None
    room: Room = Room.KEPT
    retries: int = 0
    moves: list[JobState] = field(default_factory=lambda: [JobState.PENDING])

    def move(self, event: Event, to: JobState | None = None) -> None:
        target = to or JOB.next(self.state, event, self.last, self.kind, self.room)
        self.last = self.state if event is Event.SUCCEED else self.last
        if event in (Event.RESUME, Event.DOWNLOAD_AGAIN, Event.APPROVE):
            steps = JOB.working()
            self.last = steps[steps.index(target) - 1] if steps.index(target) > 1 else None
        self.room = Room.KEPT
        self.retries += event is Event.RESUME
        self.state = target
        self.epoch += 1
        self.owner = None
        self.fed = target is not JobState.PENDING
        self.kind = None
        self.moves.append(target)


class ModelMachine(RecordMachine):
    """The jobs of one example, and how they are compared with the record at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[str, JobModel] = {}
        self.held: dict[str, Job] = {}
        """The attempts that hold a lock."""
        self.zombies: list[tuple[int, Job]] = []
        """Attempts that lost their lock without noticing: (worker, the job as the worker read it)."""
        self.old: list[Ticket] = []

    def teardown(self) -> None:
        for model in self.models.values():
            self._compare(model)
        for worker, job in self.zombies:
            self._refused(self.workers[worker], job)
        for model in [model for model in self._all() if model.owner is not None]:
            record.hand_back(self.workers[model.owner or 0], self._release(model), "worker")
        assert [str(finding) for finding in audit(self.operator)] == []
        assert space.promised(self.operator).bytes == sum(m.promised or 0 for m in self.models.values())

    def _refused(self, session: Session, job: Job) -> None:
        event = Event.ACQUIRE if job.status.status is JobState.PENDING else Event.SUCCEED
        with pytest.raises((Stale, Busy)):
            jobs.move(session, job, JobMove(event, "zombie", lock=Lock.MINE))
        with pytest.raises((Stale, Busy)):
            jobs.move(session, job, JobMove(event, "zombie", lock=Lock.CARRY))
        with pytest.raises((Stale, Busy)):
            record.hand_back(session, job, "zombie")

    # what must be so

    @invariant()
    def every_lock_has_its_owner(self) -> None:
        locks = self.operator.exists_many([paths.job_lock(jid) for jid in self.models])
        owned = [model.owner is not None for model in self.models.values()]
        assert [lock is not None for lock in locks] == owned

    def _compare(self, model: JobModel) -> None:
        if model.state is JobState.DELETED:
            with pytest.raises(Missing):
                jobs.load(self.operator, model.jid)
            assert model.jid in batches.jobs_in(self.operator, model.bid, Bucket.DELETED)
            return
        job = jobs.load(self.operator, model.jid)
        was = job.status
        assert (was.status, was.last_successful_status, was.kind, was.epoch, was.retry_count, was.room) == (
            model.state,
            model.last,
            model.kind,
            model.epoch,
            model.retries,
            model.room,
        )
        assert [entry.state for entry in job.history if entry.event or entry is job.history[0]] == model.moves
        assert job.space_needed == model.needed
        assert space.reservation_of(self.operator, model.jid) == model.promised
        assert model.jid in batches.jobs_in(self.operator, model.bid, bucket(model.state))

    def _all(self) -> list[JobModel]:
        return list(self.models.values())

    def _in(self, states: tuple[JobState, ...], *, held: bool = False) -> list[JobModel]:
        return [m for m in self._all() if m.state in states and (m.owner is not None or not held)]

    def _free(self) -> list[JobModel]:
        return [model for model in self._in(JOB.working()) if model.owner is None]

    def _returning(self) -> list[JobModel]:
        """Held jobs, and failed ones that may be resumed."""
        return [
            model
            for model in self._in((JobState.HELD, JobState.FAILED))
            if model.last is not None or model.kind is not FailureKind.CONTENT
        ]

    def _one_held(self, number: int) -> JobModel:
        return self.models[sorted(self.held)[number % len(self.held)]]

    def _release(self, model: JobModel) -> Job:
        model.owner = None
        return self.held.pop(model.jid)
