"""Moves, locks, sweeps, reservations and operators in any order, against a model, on the real server.

`MODEL_EXAMPLES=500 ./dev test tests/integration/test_model.py` looks longer, and elsewhere each time.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from pipeline.attempt import UNATTENDED
from pipeline.machine import IllegalTransition
from pipeline.outcome import Done, Promised, Reservation
from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import JOB, Event, FailureKind, JobState, Room
from tests.integration.test_sweep import later
from tests.support import nightly, planting
from tests.support.model_machine import JobModel, ModelMachine
from tests.support.record_machine import MOST, WORKERS, end_session, pick, run_machine
from tests.support.waits import RETRY
from zkstate.errors import Busy, Missing, Outdated, Stale
from zkstate.queue import queue, recovery
from zkstate.queue.job_record import ZooKeeperJobRecord
from zkstate.record import deletion, jobs, record, space
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.no_cover,  # its many runs of the same lines take twice as long where they are counted
]

FALLIBLE = tuple(state for state in JOB.working() if Event.FAIL in JOB.events(state))
STOPPABLE = (*JOB.working(), JobState.REVIEW)
LATE = JOB.working()[JOB.working().index(JobState.PROVISIONING) + 1 :]


class Pipeline(ModelMachine):
    """Two workers, and one session for the operator, the sweep and the feeder."""

    @initialize(count=st.integers(1, 3))
    def begin(self, count: int) -> None:
        self.submit(0, 0, count)

    @rule(action=pick, number=pick, worker=st.integers(0, WORKERS - 1), size=st.integers(1, 50))
    def step(self, action: int, number: int, worker: int, size: int) -> None:
        """One rule, because Hypothesis leaves some rules out of each example."""
        possible = [act for act, when, weight in self._actions() if when for _ in range(weight)]
        possible[action % len(possible)](number, worker, size)

    def _actions(self) -> list[tuple[Callable[[int, int, int], None], object, int]]:
        """What may happen, whether it can now, and how often it should."""
        return [
            (self.submit, len(self.models) < 5, 1),
            (self.acquire, True, 3),
            (self.acquire_with_a_void_ticket, self._void(), 1),
            (self.work, self._free(), 6),
            (self.take, self._in((JobState.PENDING,)), 2),
            (self.succeed, self.held, 3),
            (self.carry, self.held, 3),
            (self.fail, self._in(FALLIBLE, held=True), 1),
            (self.hand_back, self.held, 1),
            (self.hold, self._in((JobState.PENDING,), held=True), 1),
            (self.reserve_on_another_count, self._in((JobState.PROVISIONING,), held=True), 2),
            (self.lose_the_session, self.held, 1),
            (self.a_zombie_wakes_up, self.zombies, 2),
            (self.feed, True, 1),
            (self.sweep, True, 1),
            (self.operator_fails, self._in(STOPPABLE), 2),
            (self.operator_reviews, self._in((JobState.REVIEW,)), 3),
            (self.operator_releases_or_resumes, self._returning(), 3),
            (self.operator_deletes, self._in((JobState.HELD, JobState.FAILED)), 1),
            (self.clean_up, self._in((JobState.COMPLETED,)), 2),
            (self.gives_up_room, self._in((JobState.FAILED,)), 1),
            (self.download_again, self._in((JobState.DOWNLOADING, JobState.PROCESSING), held=True), 1),
            (self.reserve_more, self._in((JobState.DOWNLOADING,), held=True), 1),
            (self.ask_for_a_review, self._in((JobState.DOWNLOADING,), held=True), 1),
        ]

    def submit(self, number: int, worker: int, size: int) -> None:
        bid, jids = planting.split_batch(self.operator, 1 + size % 2)
        self.models |= {jid: JobModel(jid, bid) for jid in jids}

    # workers

    def acquire(self, number: int, worker: int, size: int) -> None:
        model = self._all()[number % len(self.models)]
        ticket = Ticket(id=model.jid, state=model.state, epoch=model.epoch)
        self.old.append(ticket)
        refusal = Missing if model.state is JobState.DELETED else Busy if model.owner is not None else None
        if refusal is not None:
            with pytest.raises(refusal):
                jobs.acquire(self.workers[worker], ticket, "worker")
        elif model.state in JOB.working():
            self._acquire(model, worker)

    def _acquire(self, model: JobModel, worker: int) -> None:
        ticket = Ticket(id=model.jid, state=model.state, epoch=model.epoch)
        self.held[model.jid] = jobs.acquire(self.workers[worker], ticket, f"worker {worker}")
        model.owner = worker

    def acquire_with_a_void_ticket(self, number: int, worker: int, size: int) -> None:
        void = self._void()
        with pytest.raises((Stale, Missing)):
            jobs.acquire(self.workers[worker], void[number % len(void)], "worker")

    def _void(self) -> list[Ticket]:
        now = {(m.jid, str(m.state), m.epoch) for m in self.models.values()}
        return [each for each in self.old if (each.id, each.state, each.epoch) not in now]

    def work(self, number: int, worker: int, size: int) -> None:
        """Up to five states in a row, as an undisturbed chain does."""
        free = self._free()
        model = free[number % len(free)]
        for _ in range(1 + size % 5):
            if model.state in JOB.working():
                self._acquire(model, worker)
                self._succeed(model, size)

    def take(self, number: int, worker: int, size: int) -> None:
        """The first state of a job is left, and the lock taken, in one transaction."""
        pending = self._in((JobState.PENDING,))
        model = pending[number % len(pending)]
        loaded = jobs.load(self.operator, model.jid)
        request = JobMove(Event.ACQUIRE, "worker", lock=Lock.TAKE)
        if model.owner is not None:
            with pytest.raises(Busy):
                jobs.move(self.workers[worker], loaded, request)
            return
        self.old.append(Ticket(id=model.jid, state=model.state, epoch=model.epoch))
        self.held[model.jid] = jobs.move(self.workers[worker], loaded, request)
        model.move(Event.ACQUIRE)
        model.owner = worker

    def succeed(self, number: int, worker: int, size: int) -> None:
        self._succeed(self._one_held(number), size)

    def carry(self, number: int, worker: int, size: int) -> None:
        """Up to five states under one lock, by the process that has the job."""
        model = self._one_held(number)
        for _ in range(1 + size % 5):
            if model.owner is not None and model.state in JOB.working():
                self._succeed(model, size, carried=True)

    def _succeed(self, model: JobModel, size: int, *, carried: bool = False) -> None:
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
            grew = model.needed != self.held[model.jid].space_needed
            done, model.needed, model.promised = Done(space_needed=size, space_grew=grew), size, size
        target = jobs.target_of(self.held[model.jid].status, done.event)
        if carried and target in JOB.working():
            request = JobMove(done.event, "worker", done=done, lock=Lock.CARRY)
            owner, self.held[model.jid] = model.owner, jobs.move(session, self.held[model.jid], request)
        else:
            owner = None
            jobs.move(session, self._release(model), JobMove(done.event, "worker", done=done))
        model.move(done.event)
        model.owner = owner
        if model.state is JobState.COMPLETED:
            model.promised = None

    def reserve_on_another_count(self, number: int, worker: int, size: int) -> None:
        waiting = self._in((JobState.PROVISIONING,), held=True)
        model = waiting[number % len(waiting)]
        session = self.workers[model.owner or 0]
        seen = space.promised(session)
        # not one less: below version 0 lies -1, which stands for any version
        another = Promised(seen.bytes, seen.version + 1)
        done = Done(reservation=Reservation(model.needed, another))
        with pytest.raises(Outdated):
            jobs.move(session, self.held[model.jid], JobMove(Event.SUCCEED, "worker", done=done))

    def fail(self, number: int, worker: int, size: int) -> None:
        held = self._in(FALLIBLE, held=True)
        model = held[number % len(held)]
        kind = tuple(FailureKind)[size % len(FailureKind)]
        session = self.workers[model.owner or 0]
        jobs.move(session, self._release(model), JobMove(Event.FAIL, "worker", message="broken", kind=kind))
        model.move(Event.FAIL)
        model.kind = kind
        if kind is FailureKind.CONTENT:
            model.promised, model.room = None, Room.YIELDED

    def hand_back(self, number: int, worker: int, size: int) -> None:
        model = self._one_held(number)
        session, tried = self.workers[model.owner or 0], bool(size % 2)
        waits_for = RETRY if tried else None
        record.hand_back(session, self._release(model), "worker", delay=5 * tried, waits_for=waits_for)
        model.epoch += 1

    def hold(self, number: int, worker: int, size: int) -> None:
        pending = self._in((JobState.PENDING,), held=True)
        model = pending[number % len(pending)]
        jobs.move(self.workers[model.owner or 0], self._release(model), JobMove(Event.HOLD, "worker"))
        model.move(Event.HOLD)

    def lose_the_session(self, number: int, worker: int, size: int) -> None:
        end_session(self.workers[worker])
        for model in [m for m in self._all() if m.owner == worker]:
            self.zombies.append((worker, self._release(model)))

    def a_zombie_wakes_up(self, number: int, worker: int, size: int) -> None:
        """Nothing that a zombie tries changes the record, whether or not another attempt has taken over."""
        worker, job = self.zombies.pop(number % len(self.zombies))
        self._refused(self.workers[worker], job)

    # timed work

    def feed(self, number: int, worker: int, size: int) -> None:
        fed = {ticket.id: ticket.epoch for ticket in queue.feed(self.operator, in_flight=1000).tickets}
        wanted = [m for m in self._all() if m.state is JobState.PENDING and not m.fed and m.owner is None]
        for model in wanted:
            model.fed = True
            model.epoch += 1
        assert fed == {model.jid: model.epoch for model in wanted}

    def sweep(self, number: int, worker: int, size: int) -> None:
        found = recovery.sweep_jobs(self.operator, frozenset(), later(self.operator, 1000), MOST)
        waiting = [
            model
            for model in self._free()
            if model.state is not JobState.PROVISIONING and (model.fed or model.state is not JobState.PENDING)
        ]
        for model in waiting:
            model.epoch += 1
        assert {t.id: t.epoch for t in found.tickets} == {m.jid: m.epoch for m in waiting}
        assert found.exhausted == ()

    # operators

    def operator_fails(self, number: int, worker: int, size: int) -> None:
        """It breaks the lock of the worker, and releases the reservation."""
        working = self._in(STOPPABLE)
        model = working[number % len(working)]
        job = jobs.load(self.operator, model.jid)
        kind = FailureKind.SYSTEM
        jobs.move(
            self.operator, job, JobMove(Event.FAIL, "operator", message="enough", kind=kind, lock=Lock.BREAK)
        )
        if model.owner is not None:
            self.zombies.append((model.owner, self._release(model)))
        model.move(Event.FAIL)
        model.kind, model.promised, model.room = kind, None, Room.YIELDED

    def operator_releases_or_resumes(self, number: int, worker: int, size: int) -> None:
        returning = self._returning()
        model = returning[number % len(returning)]
        event = Event.RELEASE if model.state is JobState.HELD else Event.RESUME
        to, room_left = None, model.room
        if event is Event.RESUME and size % 2:
            choices = JOB.targets_now(model.state, event, model.last, model.kind, model.room)
            to = choices[size % len(choices)]
        move = JobMove(event, "operator", lock=Lock.FREE, to=to)
        jobs.move(self.operator, jobs.load(self.operator, model.jid), move)
        model.move(event, to)
        if event is Event.RESUME:
            holds = model.state in LATE and room_left is not Room.EMPTY
            model.promised = model.needed if holds else None

    def operator_reviews(self, number: int, worker: int, size: int) -> None:
        """What was approved keeps its reservation; what was rejected gives it up."""
        reviewed = self._in((JobState.REVIEW,))
        model = reviewed[number % len(reviewed)]
        event = Event.APPROVE if size % 3 else Event.REJECT
        kind = FailureKind.CONTENT if event is Event.REJECT else None
        move = JobMove(event, "operator", message="decided", kind=kind, lock=Lock.FREE)
        jobs.move(self.operator, jobs.load(self.operator, model.jid), move)
        model.move(event)
        if event is Event.REJECT:
            model.kind, model.promised, model.room = kind, None, Room.YIELDED

    def gives_up_room(self, number: int, worker: int, size: int) -> None:
        """Other jobs need the room of a failed one."""
        failed = self._in((JobState.FAILED,))
        model = failed[number % len(failed)]
        if size % 2:
            jobs.yield_reservation(self.operator, model.jid, "beat")
            model.room = Room.YIELDED
        else:
            with jobs.emptying(self.operator, model.jid, "beat") as locked:
                resumed = JobMove(Event.RESUME, "operator", lock=Lock.FREE)
                with pytest.raises((Busy, IllegalTransition)):  # the latter after a failure of content
                    jobs.move(self.operator, locked, resumed)
            model.room = Room.EMPTY
        model.promised = None

    def download_again(self, number: int, worker: int, size: int) -> None:
        working = self._in((JobState.DOWNLOADING, JobState.PROCESSING), held=True)
        model = working[number % len(working)]
        done = Done(event=Event.DOWNLOAD_AGAIN)
        session = self.workers[model.owner or 0]
        jobs.move(session, self._release(model), JobMove(Event.DOWNLOAD_AGAIN, "worker", done=done))
        model.move(Event.DOWNLOAD_AGAIN)
        model.promised = None

    def ask_for_a_review(self, number: int, worker: int, size: int) -> None:
        downloading = self._in((JobState.DOWNLOADING,), held=True)
        model = downloading[number % len(downloading)]
        session, done = self.workers[model.owner or 0], Done(event=Event.REVIEW, space_needed=size)
        grew = replace(done, space_grew=model.needed != self.held[model.jid].space_needed)
        jobs.move(session, self._release(model), JobMove(Event.REVIEW, "worker", done=grew))
        model.needed = model.promised = size
        model.move(Event.REVIEW)

    def reserve_more(self, number: int, worker: int, size: int) -> None:
        downloading = self._in((JobState.DOWNLOADING,), held=True)
        model = downloading[number % len(downloading)]
        session = self.workers[model.owner or 0]
        more = model.needed + size
        job_record = ZooKeeperJobRecord(session, UNATTENDED)
        assert job_record.reserve(self.held[model.jid], more, space.promised(session))
        model.needed = model.promised = more

    def operator_deletes(self, number: int, worker: int, size: int) -> None:
        ended = self._in((JobState.HELD, JobState.FAILED))
        model = ended[number % len(ended)]
        deletion.delete_job(self.operator, jobs.load(self.operator, model.jid), "operator")
        model.state, model.promised = JobState.DELETED, None

    def clean_up(self, number: int, worker: int, size: int) -> None:
        completed = self._in((JobState.COMPLETED,))
        model = completed[number % len(completed)]
        jobs.clean_up(self.operator, jobs.load(self.operator, model.jid))


@pytest.mark.parametrize("client", ["direct", pytest.param("kazoo", marks=nightly.case)])
def test_any_order_of_workers_operators_and_periodic_work_keeps_the_record_consistent(
    settings: Settings, client: str
) -> None:
    given = settings.model_copy(update={"zk_client": client})
    run_machine(Pipeline, given, examples=20)
