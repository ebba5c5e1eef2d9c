"""Moves, locks, sweeps, promises and operators in any order, against a model, on the real server.

`MODEL_EXAMPLES=500 ./dev test tests/integration/test_model.py` looks longer, and elsewhere each time.
"""

import os
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kazoo.client import KazooClient

from pipeline.outcome import Done, Reservation
from pipeline.records import Job, Ticket
from pipeline.settings import Settings
from pipeline.states import JOB, Bucket, Event, FailureKind, JobState, bucket
from tests import planting
from tests.integration.test_sweep import later
from zkstate import batches, deletion, jobs, paths, queue, recovery, space
from zkstate.audit import audit
from zkstate.errors import Busy, Missing, Refused, Stale
from zkstate.jobs import Lock
from zkstate.session import connect

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "0"))
WORKERS = 2
MOST = 1000
"""Lost workers after which a sweep gives up: more than a run of the model has steps."""

pick = st.integers(0, 1000)
"""Which of the candidates, counted modulo their number."""


@dataclass
class Model:
    """What a job must be; `owner` is the worker whose attempt holds its lock."""

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
    retries: int = 0
    moves: list[JobState] = field(default_factory=lambda: [JobState.PENDING])

    def move(self, event: Event) -> None:
        target = JOB.next(self.state, event, self.last, self.kind)
        self.last = self.state if event is Event.SUCCEED else self.last
        self.retries += event is Event.RESUME
        self.state = target
        self.epoch += 1
        self.owner = None
        self.fed = target is not JobState.PENDING
        self.kind = None
        self.moves.append(target)


class Pipeline(RuleBasedStateMachine):
    """Two workers, an operator, a sweep and a feeder, each with its own session."""

    shared: Settings

    def __init__(self) -> None:
        super().__init__()
        own = self.shared.model_copy(update={"zk_root": f"{self.shared.zk_root}-{os.urandom(6).hex()}"})
        self.operator = connect(own)
        self.workers = [connect(own) for _ in range(WORKERS)]
        self.models: dict[str, Model] = {}
        self.held: dict[str, Job] = {}
        """The attempts that hold a lock."""
        self.zombies: list[tuple[int, Job]] = []
        """Attempts that lost theirs without knowing it: (worker, what it believes)."""
        self.old: list[Ticket] = []

    def teardown(self) -> None:
        try:
            for model in self.models.values():
                self._compare(model)
            assert [str(finding) for finding in audit(self.operator)] == []
            assert space.promised(self.operator).bytes == sum(m.promised or 0 for m in self.models.values())
        finally:
            for session in (self.operator, *self.workers):
                session.close()

    @initialize(count=st.integers(1, 3))
    def begin(self, count: int) -> None:
        self._submit(count)

    @rule(count=st.integers(1, 2))
    @precondition(lambda self: len(self.models) < 6)
    def submit(self, count: int) -> None:
        self._submit(count)

    def _submit(self, count: int) -> None:
        bid, jids = planting.split_batch(self.operator, count)
        self.models |= {jid: Model(jid, bid) for jid in jids}

    # --- workers

    @rule(number=pick, worker=st.integers(0, WORKERS - 1))
    def acquire(self, number: int, worker: int) -> None:
        model = self._any(number)
        ticket = Ticket(id=model.jid, state=model.state, epoch=model.epoch)
        self.old.append(ticket)
        if model.state is JobState.DELETED:
            with pytest.raises(Missing):
                jobs.acquire(self.workers[worker], ticket, "worker")
        elif model.owner is not None:
            with pytest.raises(Busy):
                jobs.acquire(self.workers[worker], ticket, "worker")
        elif model.state in JOB.working():
            self._acquire(model, worker)

    def _acquire(self, model: Model, worker: int) -> None:
        ticket = Ticket(id=model.jid, state=model.state, epoch=model.epoch)
        self.held[model.jid] = jobs.acquire(self.workers[worker], ticket, f"worker {worker}")
        model.owner = worker

    @rule(number=pick, worker=st.integers(0, WORKERS - 1))
    @precondition(lambda self: self._void())
    def acquire_with_a_void_ticket(self, number: int, worker: int) -> None:
        void = self._void()
        with pytest.raises((Stale, Missing)):
            jobs.acquire(self.workers[worker], void[number % len(void)], "worker")

    def _void(self) -> list[Ticket]:
        now = {(m.jid, str(m.state), m.epoch) for m in self.models.values()}
        return [each for each in self.old if (each.id, each.state, each.epoch) not in now]

    @rule(number=pick, size=st.integers(0, 50))
    @precondition(lambda self: self.held)
    def succeed(self, number: int, size: int) -> None:
        self._succeed(self.models[sorted(self.held)[number % len(self.held)]], size)

    @rule(number=pick, worker=st.integers(0, WORKERS - 1), size=st.integers(1, 50), steps=st.integers(1, 7))
    def work(self, number: int, worker: int, size: int, steps: int) -> None:
        """Several states in a row, as an undisturbed chain does, so that deep states are met often."""
        model = self._any(number)
        for _ in range(steps):
            if model.owner is None and model.state in JOB.working():
                self._acquire(model, worker)
                self._succeed(model, size)

    def _succeed(self, model: Model, size: int) -> None:
        assert model.owner is not None
        session = self.workers[model.owner]
        done = Done()
        if model.state is JobState.PENDING:
            done = Done(event=Event.ACQUIRE)
        elif model.state is JobState.ESTIMATING:
            done, model.needed = Done(space_needed=size), size
        elif model.state is JobState.PROVISIONING:
            done = Done(reservation=Reservation(model.needed, space.promised(session)))
            model.promised = model.needed
        elif model.state is JobState.DOWNLOADING:
            done, model.needed, model.promised = Done(space_needed=size), size, size
        jobs.move(session, self._release(model), done.event, "worker", done=done)
        model.move(done.event)

    @rule(number=pick)
    @precondition(
        lambda self: any(m.state is JobState.PROVISIONING and m.owner is not None for m in self._all())
    )
    def reserve_on_an_outdated_count(self, number: int) -> None:
        waiting = [m for m in self._all() if m.state is JobState.PROVISIONING and m.owner is not None]
        model = waiting[number % len(waiting)]
        session = self.workers[model.owner or 0]
        seen = space.promised(session)
        outdated = type(seen)(seen.bytes, seen.version - 1)
        done = Done(reservation=Reservation(model.needed, outdated))
        with pytest.raises(Refused) as refused:
            jobs.move(session, self.held[model.jid], Event.SUCCEED, "worker", done=done)
        assert refused.value.path == paths.SPACE

    @rule(number=pick, kind=st.sampled_from(FailureKind))
    @precondition(lambda self: self.held)
    def fail(self, number: int, kind: FailureKind) -> None:
        model, worker, job = self._one_held(number)
        jobs.move(self.workers[worker], job, Event.FAIL, "worker", message="broken", kind=kind)
        self._release(model)
        model.move(Event.FAIL)
        model.kind = kind

    @rule(number=pick, tried=st.booleans())
    @precondition(lambda self: self.held)
    def hand_back(self, number: int, tried: bool) -> None:
        model, worker, job = self._one_held(number)
        jobs.hand_back(self.workers[worker], job, "worker", delay=5 * tried, tried=tried)
        self._release(model)
        model.epoch += 1

    @rule(number=pick)
    @precondition(lambda self: any(m.state is JobState.PENDING and m.owner is not None for m in self._all()))
    def hold(self, number: int) -> None:
        pending = [m for m in self._all() if m.state is JobState.PENDING and m.owner is not None]
        model = pending[number % len(pending)]
        jobs.move(self.workers[model.owner or 0], self.held[model.jid], Event.HOLD, "worker")
        self._release(model)
        model.move(Event.HOLD)

    @rule(worker=st.integers(0, WORKERS - 1))
    def lose_the_session(self, worker: int) -> None:
        """The server forgets the session, and with it every lock; the client goes on with a new one."""
        session = self.workers[worker]
        lost = session.standing()
        victim = KazooClient(hosts=session.hosts, client_id=session.zk.client_id, timeout=4)
        victim.start(timeout=10)
        victim.stop()
        victim.close()
        while session.standing() == lost:
            session.exists("/")
        for model in [m for m in self._all() if m.owner == worker]:
            self.zombies.append((worker, self._release(model)))

    @rule(number=pick)
    @precondition(lambda self: self.zombies)
    def a_zombie_wakes_up(self, number: int) -> None:
        """Whatever it tries changes nothing, whether or not another attempt has gone on meanwhile."""
        worker, job = self.zombies.pop(number % len(self.zombies))
        session = self.workers[worker]
        event = Event.ACQUIRE if job.status.status is JobState.PENDING else Event.SUCCEED
        with pytest.raises((Stale, Busy)):
            jobs.move(session, job, event, "zombie", lock=Lock.MINE)
        with pytest.raises((Stale, Busy)):
            jobs.hand_back(session, job, "zombie")

    # --- timed work

    @rule()
    def feed(self) -> None:
        fed = {ticket.id: ticket.epoch for ticket in queue.feed(self.operator, in_flight=1000)}
        wanted = [m for m in self._all() if m.state is JobState.PENDING and not m.fed and m.owner is None]
        for model in wanted:
            model.fed = True
            model.epoch += 1
        assert fed == {model.jid: model.epoch for model in wanted}

    @rule()
    def sweep(self) -> None:
        found = recovery.sweep_jobs(self.operator, frozenset(), later(self.operator), MOST)
        waiting = [
            model
            for model in self._all()
            if model.owner is None
            and model.state in JOB.working()
            and model.state is not JobState.PROVISIONING
            and (model.fed or model.state is not JobState.PENDING)
        ]
        for model in waiting:
            model.epoch += 1
        assert {t.id: t.epoch for t in found.tickets} == {m.jid: m.epoch for m in waiting}
        assert found.hopeless == ()

    # --- operators

    @rule(number=pick)
    def operator_fails(self, number: int) -> None:
        """It breaks the lock of whoever works on the job, and takes back the promise."""
        model = self._any(number)
        if model.state not in JOB.working():
            return
        job = jobs.load(self.operator, model.jid)
        jobs.move(
            self.operator,
            job,
            Event.FAIL,
            "operator",
            message="enough",
            kind=FailureKind.SYSTEM,
            lock=Lock.BREAK,
        )
        if model.owner is not None:
            self.zombies.append((model.owner, self._release(model)))
        model.move(Event.FAIL)
        model.kind, model.promised = FailureKind.SYSTEM, None

    @rule(number=pick)
    def operator_releases_or_resumes(self, number: int) -> None:
        model = self._any(number)
        refused = model.kind is FailureKind.CONTENT and model.last is None
        if model.state not in (JobState.HELD, JobState.FAILED) or refused:
            return
        event = Event.RELEASE if model.state is JobState.HELD else Event.RESUME
        jobs.move(self.operator, jobs.load(self.operator, model.jid), event, "operator", lock=Lock.FREE)
        model.move(event)
        order = JOB.working()
        after = model.state in order and order.index(model.state) > order.index(JobState.PROVISIONING)
        if event is Event.RESUME and after:
            model.promised = model.needed

    @rule(number=pick)
    def operator_deletes(self, number: int) -> None:
        model = self._any(number)
        if model.state not in (JobState.HELD, JobState.FAILED):
            return
        deletion.delete_job(self.operator, jobs.load(self.operator, model.jid))
        model.state, model.promised = JobState.DELETED, None

    @rule(number=pick)
    def clean_up(self, number: int) -> None:
        model = self._any(number)
        if model.state is JobState.COMPLETED:
            jobs.clean_up(self.operator, jobs.load(self.operator, model.jid))
            model.promised = None

    # --- what must always be so

    @invariant()
    def every_lock_has_its_owner(self) -> None:
        for model in self._all():
            if model.state is not JobState.DELETED:
                locked = self.operator.exists(paths.job_lock(model.jid)) is not None
                assert locked == (model.owner is not None), model

    def _compare(self, model: Model) -> None:
        if model.state is JobState.DELETED:
            with pytest.raises(Missing):
                jobs.load(self.operator, model.jid)
            assert model.jid in batches.jobs_in(self.operator, model.bid, Bucket.DELETED)
            return
        job = jobs.load(self.operator, model.jid)
        was = job.status
        assert (was.status, was.last_successful_status, was.kind, was.epoch, was.retry_count) == (
            model.state,
            model.last,
            model.kind,
            model.epoch,
            model.retries,
        )
        assert [entry.state for entry in job.history if entry.event or entry is job.history[0]] == model.moves
        assert job.space_needed == model.needed
        assert space.reservation_of(self.operator, model.jid) == model.promised
        assert model.jid in batches.jobs_in(self.operator, model.bid, bucket(model.state))

    def _all(self) -> list[Model]:
        return list(self.models.values())

    def _any(self, number: int) -> Model:
        return self._all()[number % len(self.models)]

    def _one_held(self, number: int) -> tuple[Model, int, Job]:
        jid = sorted(self.held)[number % len(self.held)]
        model = self.models[jid]
        assert model.owner is not None
        return model, model.owner, self.held[jid]

    def _release(self, model: Model) -> Job:
        model.owner = None
        return self.held.pop(model.jid)


def test_any_order_of_workers_operators_and_timed_work_keeps_the_record_true(settings: Settings) -> None:
    class Here(Pipeline):
        shared = settings

    run_state_machine_as_test(
        Here,
        settings=hypothesis_settings(
            max_examples=EXAMPLES or 10,
            stateful_step_count=40,
            deadline=None,
            derandomize=not EXAMPLES,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
