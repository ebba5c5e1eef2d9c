"""Splits, reports, lost sessions, sweeps and operators in any order, against a model of every batch.

`MODEL_EXAMPLES=500 ./dev test tests/integration/test_model_batches.py` looks longer, and elsewhere each time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from operations.site import Site
from operations.verbs.bulk import cancel
from pipeline.attempt import UNATTENDED
from pipeline.records import Batch, StatusReport
from pipeline.settings import Settings
from pipeline.states import BATCH, BatchState, Bucket, Event
from tests.integration.test_sweep import later
from tests.support import nightly, planting
from tests.support.operators import ANN
from tests.support.record_machine import MOST, WORKERS, RecordMachine, end_session, pick, run_machine
from tests.support.waits import RETRY
from zkstate import paths
from zkstate.care.audit import audit
from zkstate.connection.session import Session
from zkstate.errors import Busy, Stale
from zkstate.queue import recovery
from zkstate.record import batches, creation, deletion, jobs, record
from zkstate.record.batches import BatchMove
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.no_cover,  # its many runs of the same lines take twice as long where they are counted
]

REPORTS = BATCH.where(lambda facts: facts.reports)
PLAN = planting.plan(3)


@dataclass
class BatchModel:
    """The expected state of a batch; `owner` is the worker whose attempt holds its lock."""

    bid: str
    state: BatchState = BatchState.PENDING
    created: int = 0
    total: int | None = None
    epoch: int = 1
    owner: int | None = None
    moves: list[BatchState] = field(default_factory=lambda: [BatchState.PENDING])

    def move(self, event: Event, *, keeps: bool = False) -> None:
        self.state = BATCH.next(self.state, event)
        self.epoch += 1
        self.owner = self.owner if keeps else None
        self.moves.append(self.state)
        if event is Event.FAIL and self.total is None:
            self.total = self.created

    @property
    def wants_a_worker(self) -> bool:
        waits_for_jobs = self.state is BatchState.PROCESSING and self.total is not None
        return self.state in BATCH.working() and not waits_for_jobs


class Batches(RecordMachine):
    """Two workers, and one session for the operator and the sweep."""

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[str, BatchModel] = {}
        self.held: dict[str, Batch] = {}
        self.zombies: list[tuple[int, Batch]] = []

    @initialize(count=st.integers(1, 3))
    def begin(self, count: int) -> None:
        for _ in range(count):
            self.submit(0, 0)

    @rule(action=pick, number=pick, worker=st.integers(0, WORKERS - 1))
    def step(self, action: int, number: int, worker: int) -> None:
        """One rule, because Hypothesis leaves some rules out of each example."""
        possible = [act for act, when, weight in self._actions() if when for _ in range(weight)]
        possible[action % len(possible)](number, worker)

    def _actions(self) -> list[tuple[Callable[[int, int], None], object, int]]:
        return [
            (self.submit, len(self.models) < 4, 1),
            (self.acquire, self._free(), 6),
            (self.continue_work, self.held, 8),
            (self.fail, [b for b in self.held if Event.FAIL in BATCH.events(self.models[b].state)], 1),
            (self.hold, self._held_in(BatchState.PENDING), 1),
            (self.hand_back, self.held, 1),
            (self.lose_the_session, self.held, 2),
            (self.a_zombie_wakes_up, self.zombies, 3),
            (self.end_the_jobs, self._at_work(), 4),
            (self.sweep, True, 1),
            (self.operator_releases, self._in(BatchState.HELD), 2),
            (self.operator_requests_an_update, self._in(BatchState.FAILED), 2),
            (self.operator_cancels, self._unended(), 1),
            (self.operator_deletes, self._in(BatchState.HELD, BatchState.FAILED), 1),
        ]

    def submit(self, number: int, worker: int) -> None:
        bid = batches.submit(self.operator, planting.submission())
        self.models[bid] = BatchModel(bid)

    # workers

    def acquire(self, number: int, worker: int) -> None:
        model = self._free()[number % len(self._free())]
        ticket = record.ticket(batches.load(self.operator, model.bid))
        assert ticket.epoch == model.epoch
        self.held[model.bid] = batches.acquire(self.workers[worker], ticket, f"worker {worker}")
        model.owner = worker
        with pytest.raises((Stale, Busy)):
            batches.acquire(self.workers[1 - worker], ticket, "another")

    def continue_work(self, number: int, worker: int) -> None:
        """The next transaction of a split or of a report."""
        model = self._one_held(number)
        session, held = self.workers[model.owner or 0], self.held[model.bid]
        if model.state is BatchState.PENDING:
            start = BatchMove(Event.ACQUIRE, "worker", lock=Lock.KEEP)
            self.held[model.bid] = batches.move(session, held, start)
            model.move(Event.ACQUIRE, keeps=True)
        elif model.state in REPORTS:
            batches.move(
                session, self._release(model), BatchMove(Event.FAIL, "worker", report=self._report(model))
            )
            model.move(Event.FAIL)
        elif model.created < len(PLAN.jobs):
            self.held[model.bid] = next(self._creation(session, held))
            model.created = self.held[model.bid].status.created
        else:
            batches.finish_split(session, self._release(model))
            model.total, model.owner = model.created, None

    def _creation(self, session: Session, batch: Batch) -> Iterator[Batch]:
        return creation.create_jobs(session, batch, PLAN, planting.WORKING, "worker", UNATTENDED)

    def _report(self, model: BatchModel) -> StatusReport:
        return StatusReport(failed_jobs=tuple(batches.all_jobs(self.operator, model.bid)))

    def fail(self, number: int, worker: int) -> None:
        fallible = [bid for bid in sorted(self.held) if Event.FAIL in BATCH.events(self.models[bid].state)]
        model = self.models[fallible[number % len(fallible)]]
        session = self.workers[model.owner or 0]
        batches.move(session, self._release(model), BatchMove(Event.FAIL, "worker", "broken"))
        model.move(Event.FAIL)

    def hold(self, number: int, worker: int) -> None:
        pending = self._held_in(BatchState.PENDING)
        model = pending[number % len(pending)]
        batches.move(self.workers[model.owner or 0], self._release(model), BatchMove(Event.HOLD, "worker"))
        model.move(Event.HOLD)

    def hand_back(self, number: int, worker: int) -> None:
        model = self._one_held(number)
        session = self.workers[model.owner or 0]
        waits_for = RETRY if number % 2 else None
        record.hand_back(session, self._release(model), "worker", waits_for=waits_for)
        model.epoch += 1

    def lose_the_session(self, number: int, worker: int) -> None:
        end_session(self.workers[worker])
        for model in [m for m in self.models.values() if m.owner == worker]:
            self.zombies.append((worker, self._release(model)))

    def a_zombie_wakes_up(self, number: int, worker: int) -> None:
        worker, batch = self.zombies.pop(number % len(self.zombies))
        self._refused(self.workers[worker], batch)

    def _refused(self, session: Session, batch: Batch) -> None:
        """Nothing that a zombie tries changes the record, whether or not another attempt has taken over."""
        tries: list[Callable[[], object]] = [lambda: record.hand_back(session, batch, "zombie")]
        for event in BATCH.events(batch.status.status) & {Event.ACQUIRE, Event.SUCCEED, Event.FAIL}:
            request = BatchMove(event, "zombie", report=StatusReport(failed_jobs=("jid0000000001",)))
            tries.append(lambda request=request: batches.move(session, batch, request))  # type: ignore[misc]
        if batch.status.status is BatchState.PROCESSING:
            tries.append(lambda: batches.finish_split(session, batch))
        for act in tries:
            with pytest.raises((Stale, Busy)):
                act()

    # jobs and timed work

    def end_the_jobs(self, number: int, worker: int) -> None:
        model = self._at_work()[number % len(self._at_work())]
        for jid in batches.jobs_in(self.operator, model.bid, Bucket.PROCESSING):
            job = jobs.load(self.operator, jid)
            jobs.move(self.operator, job, JobMove(Event.FAIL, "operator", lock=Lock.FREE))
        if batches.finish_if_ended(self.operator, model.bid, "worker"):
            model.move(Event.SUCCEED)

    def sweep(self, number: int, worker: int) -> None:
        found = recovery.sweep_batches(self.operator, frozenset(), later(self.operator, 1000), "sweep", MOST)
        expected = {}
        for model in self.models.values():
            if model.owner is None and model.wants_a_worker:
                model.epoch += 1
                expected[model.bid] = model.epoch
            elif self._waits_for_nothing(model):
                model.move(Event.SUCCEED)
                expected[model.bid] = model.epoch
        assert {ticket.id: ticket.epoch for ticket in found.tickets} == expected
        assert found.exhausted == ()

    def _waits_for_nothing(self, model: BatchModel) -> bool:
        """Split, and none of its jobs is at work."""
        split = model.state is BatchState.PROCESSING and model.total is not None
        return split and not batches.jobs_in(self.operator, model.bid, Bucket.PROCESSING)

    # operators

    def _by_operator(self, model: BatchModel, event: Event) -> Batch:
        moved = batches.move(
            self.operator, batches.load(self.operator, model.bid), BatchMove(event, "ann", lock=Lock.FREE)
        )
        model.move(event)
        return moved

    def operator_releases(self, number: int, worker: int) -> None:
        self._by_operator(self._nth(number, BatchState.HELD), Event.RELEASE)

    def operator_requests_an_update(self, number: int, worker: int) -> None:
        self._by_operator(self._nth(number, BatchState.FAILED), Event.UPDATE_REPORT)

    def operator_cancels(self, number: int, worker: int) -> None:
        model = self._unended()[number % len(self._unended())]
        if model.owner is not None:
            self.zombies.append((model.owner, self._release(model)))
        cancel(Site(self.settings, self.operator), ANN, model.bid)
        if model.wants_a_worker or model.state is BatchState.HELD:
            model.move(Event.FAIL)
        if model.state is BatchState.PROCESSING:
            model.move(Event.SUCCEED)  # its jobs were stopped, too

    def operator_deletes(self, number: int, worker: int) -> None:
        model = self._nth(number, BatchState.HELD, BatchState.FAILED)
        deletion.remove_batch(self.operator, self._by_operator(model, Event.DELETE))
        del self.models[model.bid]

    # what must be so

    @invariant()
    def every_lock_has_its_owner(self) -> None:
        locks = self.operator.exists_many([paths.batch_lock(bid) for bid in self.models])
        assert [lock is not None for lock in locks] == [m.owner is not None for m in self.models.values()]

    def teardown(self) -> None:
        for model in self.models.values():
            batch = batches.load(self.operator, model.bid)
            status = batch.status
            assert (status.status, status.created, status.total, status.epoch) == (
                model.state,
                model.created,
                model.total,
                model.epoch,
            )
            first, *others = batch.history
            assert [first.state, *(entry.state for entry in others if entry.event)] == model.moves
            assert len(batches.all_jobs(self.operator, model.bid)) == model.created
        for worker, batch in self.zombies:
            self._refused(self.workers[worker], batch)
        for model in [model for model in self.models.values() if model.owner is not None]:
            record.hand_back(self.workers[model.owner or 0], self._release(model), "worker")
        assert [str(finding) for finding in audit(self.operator)] == []

    def _in(self, *states: BatchState) -> list[BatchModel]:
        return [model for model in self.models.values() if model.state in states]

    def _nth(self, number: int, *states: BatchState) -> BatchModel:
        candidates = self._in(*states)
        return candidates[number % len(candidates)]

    def _free(self) -> list[BatchModel]:
        return [model for model in self.models.values() if model.wants_a_worker and model.owner is None]

    def _held_in(self, state: BatchState) -> list[BatchModel]:
        return [self.models[bid] for bid in sorted(self.held) if self.models[bid].state is state]

    def _at_work(self) -> list[BatchModel]:
        """Batches that may have jobs that have not ended."""
        return [model for model in self._in(BatchState.PROCESSING) if model.created]

    def _unended(self) -> list[BatchModel]:
        return [model for model in self.models.values() if not BATCH.facts[model.state].ended]

    def _one_held(self, number: int) -> BatchModel:
        return self.models[sorted(self.held)[number % len(self.held)]]

    def _release(self, model: BatchModel) -> Batch:
        model.owner = None
        return self.held.pop(model.bid)


@pytest.mark.parametrize("client", ["direct", pytest.param("kazoo", marks=nightly.case)])
def test_any_order_of_splits_reports_zombies_and_operators_keeps_the_batches_consistent(
    settings: Settings, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "CHUNK", 2)
    given = settings.model_copy(update={"zk_client": client})
    run_machine(Batches, given, examples=15)
