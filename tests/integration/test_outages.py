"""A fault of a shared service pauses the work that needs it, for the whole fleet, until a probe succeeds."""

from collections.abc import Iterator
from threading import Event as Gate

import pytest
from kazoo.protocol.states import Callback

from entrypoints.render import explanation
from entrypoints.render.fleet_status import outage_text
from operations.fleet.health import HealthProblem, overview
from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline.deployment import outdated
from pipeline.errors import Action, Remedy
from pipeline.outcome import Service, ServiceDown, WaitKind, WaitsFor, content
from pipeline.records import Job, Ticket
from pipeline.settings import Settings
from pipeline.states import JOB, Event, FailureKind, JobState
from tasks import outages as of_tasks
from tasks.app import make_context
from tasks.outages import JOB_NEEDS, this_host
from tasks.run import Attempt, StateWork
from tasks.worker_context import WorkerContext
from tests.support import cli, planting
from tests.support.attempts import work_on
from tests.support.clocks import since_change
from tests.support.operators import ANN
from tests.support.polling import eventually
from zkstate import paths
from zkstate.care.audit import audit
from zkstate.connection.clock import ServerClock
from zkstate.connection.session import Session, connect
from zkstate.errors import Stale
from zkstate.fleet import holds, outages
from zkstate.fleet.outages import Outage
from zkstate.queue import queue, recovery
from zkstate.record import callbacks, jobs, record
from zkstate.record.journal import JournalAction
from zkstate.record.record import Lock

DOWN = ServiceDown(Service.INVENTORY, "the inventory cannot be used: disk I/O error")
INVENTORY = "inventory"


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    opened = make_context(settings)
    opened.session()  # gives the empty stores their deployment id
    yield opened
    opened.drop_session()


def working_on(error: Exception | None) -> StateWork[Job]:
    """Work of a state: it meets `error`, or succeeds."""

    def do(attempt: Attempt[Job]) -> Job | None:
        if error is not None:
            raise error
        return jobs.move(attempt.session, attempt.record, jobs.JobMove(Event.SUCCEED, "worker"))

    def fail(attempt: Attempt[Job], failure: Exception) -> Job:
        request = jobs.JobMove(Event.FAIL, "worker", message=str(failure))
        return jobs.move(attempt.session, attempt.record, request)

    return StateWork(jobs.load, do, fail)


def attempt(
    context: WorkerContext,
    job: Job | Ticket,
    error: Exception | None = None,
) -> None:
    ticket = job if isinstance(job, Ticket) else record.ticket(job)
    learn(context.session())
    work_on(context, ticket, working_on(error))


def learn(session: Session) -> None:
    """Wait until the session's watches have told it of the outages as they are."""

    def learned() -> bool:
        written = [session.find(paths.outage(name)) for name in session.children(paths.OUTAGES)]
        stats = {node[1] for node in written if node}
        return {known.stat for known in outages.known(session).values()} == stats

    assert eventually(learned)


def recording(session: Session) -> Job:
    return planting.job_in(session, JobState.RECORDING)


def later(session: Session, seconds: float) -> ServerClock:
    """The server's clock so many seconds after the last change of the outage."""
    return since_change(session, paths.outage(INVENTORY), seconds)


def sweep(session: Session, seconds: float, room: int = 100, live: tuple[Ticket, ...] = ()) -> list[Ticket]:
    tickets = frozenset((ticket.id, ticket.epoch) for ticket in live)
    learn(session)
    return list(recovery.sweep_jobs(session, tickets, later(session, seconds), 3, room=room).tickets)


def outage(session: Session) -> Outage | None:
    learn(session)
    found = outages.known(session).get(INVENTORY)
    return found.outage if found else None


def packets(session: Session) -> int:
    """Requests that the server has received so far."""
    lines = session.zk.command(b"mntr").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("zk_packets_received"))


def test_whoever_enters_an_outage_knows_it_before_its_watches_fire(session: Session) -> None:
    gate = Gate()
    session.zk.handler.dispatch_callback(Callback("watch", gate.wait, ()))  # their thread is busy
    try:
        assert outages.report(session, DOWN, this_host())

        assert INVENTORY in outages.known(session)
    finally:
        gate.set()


def test_a_fault_of_a_shared_service_begins_one_outage_and_counts_no_try(
    session: Session, context: WorkerContext
) -> None:
    first, second = recording(session), recording(session)

    attempt(context, first, DOWN)
    attempt(context, second, DOWN)

    status = jobs.load(session, first.jid).status
    assert (status.status, status.tries) == (JobState.RECORDING, 0)
    assert status.waits_for
    assert (status.waits_for.kind, status.waits_for.name) == (WaitKind.SERVICE, INVENTORY)
    begun = outage(session)
    assert begun
    assert (begun.message, begun.hosts) == (DOWN.message, (this_host(),))
    entered = [entry for entry in holds.actions(session) if entry.action is JournalAction.OUTAGE]
    assert [(entry.target, entry.reason) for entry in entered] == [(INVENTORY, DOWN.message)]
    assert audit(session) == ()


def test_during_an_outage_no_job_that_needs_the_service_is_started(
    session: Session, context: WorkerContext
) -> None:
    attempt(context, recording(session), DOWN)
    other = recording(session)

    attempt(context, other)  # would succeed

    status = jobs.load(session, other.jid).status
    assert (status.status, status.attempt) == (JobState.RECORDING, other.status.attempt)
    assert status.waits_for
    assert status.waits_for.name == INVENTORY


def test_jobs_that_wait_for_a_service_are_kept_except_one_probe_when_it_is_due(
    session: Session, context: WorkerContext
) -> None:
    for _ in range(3):
        attempt(context, recording(session), DOWN)

    assert sweep(session, seconds=4) == []
    (probe,) = sweep(session, seconds=6)
    assert sweep(session, seconds=9, live=(probe,)) == []

    attempt(context, probe, DOWN)
    (second,) = sweep(session, seconds=11)
    assert second.id != probe.id
    known = outage(session)
    assert known
    assert known.probes == 2


def test_a_probe_that_succeeds_ends_the_outage_and_the_others_continue(
    session: Session, context: WorkerContext
) -> None:
    waiting = [recording(session) for _ in range(4)]
    for job in waiting:
        attempt(context, job, DOWN)
    (probe,) = sweep(session, seconds=6)

    attempt(context, probe)

    assert jobs.load(session, probe.id).status.status is JobState.NOTIFY
    over = outage(session)
    assert over
    assert over.ended
    dispatched = sweep(session, seconds=0, room=2)
    assert len(dispatched) == 2  # at a bounded pace
    assert {ticket.id for ticket in (*dispatched, *sweep(session, seconds=0, room=2))} == {
        job.jid for job in waiting
    } - {probe.id}


def test_two_outages_that_the_same_jobs_meet_are_both_probed(
    session: Session, context: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ServiceDown(Service.STORAGE, "the storage root is read-only")
    both = frozenset({Service.INVENTORY, Service.STORAGE})
    monkeypatch.setitem(JOB_NEEDS, JobState.RECORDING, both)
    attempt(context, recording(session), DOWN)
    attempt(context, recording(session))  # waits for the inventory
    outages.report(session, other, this_host())

    (probe,) = sweep(session, seconds=6)
    attempt(context, probe)

    assert jobs.load(session, probe.id).status.status is JobState.NOTIFY
    learn(session)
    assert all(known.outage.ended for known in outages.known(session).values())


def test_a_probe_ends_the_outage_although_its_worker_has_not_learned_of_it(
    session: Session, context: WorkerContext
) -> None:
    waiting, gate = recording(session), Gate()
    learn(context.session())
    context.session().zk.handler.dispatch_callback(Callback("watch", gate.wait, ()))  # watches fire later
    try:
        outages.report(session, DOWN, this_host())
        locked = jobs.acquire(session, record.ticket(waiting), "another worker")
        record.hand_back(
            session,
            locked,
            "another worker",
            delay=1,
            waits_for=WaitsFor(kind=WaitKind.SERVICE, name=INVENTORY),
        )
        (probe,) = sweep(session, seconds=6)

        work_on(context, probe, working_on(None))

        over = outage(session)
        assert over
        assert over.ended
    finally:
        gate.set()


def test_a_job_that_an_operator_fails_during_the_sweep_probes_nothing_and_its_callback_stays(
    session: Session, context: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = recording(session)
    attempt(context, job, DOWN)
    take_probe = outages.take_probe

    def late(session: Session, known: outages.Known, clock: ServerClock) -> bool:
        no = jobs.JobMove(Event.FAIL, "operator", "no", FailureKind.SYSTEM, Lock.FREE)
        jobs.move(session, jobs.load(session, job.jid), no)
        return take_probe(session, known, clock)

    monkeypatch.setattr(outages, "take_probe", late)

    assert sweep(session, seconds=6) == []

    failed = jobs.load(session, job.jid)
    assert callbacks.owed(session, job.jid, failed.status.epoch)
    with pytest.raises(Stale):
        record.redispatch(session, failed, lost=False)


def test_a_probe_that_fails_for_a_reason_of_its_own_ends_no_outage(
    session: Session, context: WorkerContext
) -> None:
    attempt(context, recording(session), DOWN)
    (probe,) = sweep(session, seconds=6)

    attempt(context, probe, content("damaged"))

    assert jobs.load(session, probe.id).status.status is JobState.FAILED
    known = outage(session)
    assert known
    assert known.ended is None


def test_a_service_that_comes_and_goes_has_one_outage_and_is_forgotten_when_it_stays(
    session: Session, context: WorkerContext
) -> None:
    attempt(context, recording(session), DOWN)
    begun = outage(session)
    assert outages.succeeded(session, INVENTORY, this_host())
    attempt(context, recording(session), DOWN)

    again = outage(session)
    assert begun
    assert again
    assert (again.since, again.ended) == (begun.since, None)
    outages.succeeded(session, INVENTORY, this_host())
    assert outages.forget_ended(session, later(session, 50), "sweep") == []
    (over,) = outages.forget_ended(session, later(session, 61), "sweep")
    assert over.name == INVENTORY
    assert outage(session) is None
    assert [entry.action for entry in holds.actions(session)] == [
        JournalAction.OUTAGE,
        JournalAction.OUTAGE_OVER,
    ]


def test_a_job_that_alone_meets_the_fault_counts_tries_and_stops_nobody(
    session: Session, context: WorkerContext
) -> None:
    poisonous = recording(session)
    attempt(context, poisonous, DOWN)
    outages.succeeded(session, INVENTORY, this_host())  # the service worked for another job
    (ticket,) = sweep(session, seconds=0)

    attempt(context, ticket, DOWN)

    status = jobs.load(session, poisonous.jid).status
    assert status.waits_for
    assert (status.tries, status.waits_for.kind) == (1, WaitKind.RETRY)
    known = outage(session)
    assert known
    assert known.ended


def test_a_fault_of_one_hosts_mount_stops_that_host_only(session: Session) -> None:
    fault = ServiceDown(Service.STORAGE, "the storage root /s is missing", of_host=True)
    outages.report(session, fault, "bad")
    assert outages.blocking(session, ["storage"], "good")

    assert not outages.succeeded(session, "storage", "good")

    assert outages.blocking(session, ["storage"], "bad")
    assert not outages.blocking(session, ["storage"], "good")
    assert not outages.report(session, fault, "bad")
    assert not outages.blocking(session, ["storage"], "good")  # it does not flap
    assert outages.succeeded(session, "storage", "bad")
    assert not outages.blocking(session, ["storage"], "bad")


def test_the_fault_of_a_mount_that_a_second_host_meets_stops_all_hosts_again(session: Session) -> None:
    fault = ServiceDown(Service.STORAGE, "the storage root /s is missing", of_host=True)
    outages.report(session, fault, "bad")
    outages.succeeded(session, "storage", "good")

    outages.report(session, fault, "good")

    assert outages.blocking(session, ["storage"], "third")


def test_without_an_outage_nothing_is_asked_of_zookeeper(session: Session) -> None:
    outages.known(session)
    before = packets(session)

    for _ in range(1000):
        assert not outages.blocking(session, [INVENTORY], this_host())

    assert packets(session) - before < 100  # pings and other sessions of the test


def test_an_outage_is_known_to_every_session_at_once(settings: Settings, session: Session) -> None:
    assert outages.known(session) == {}
    with connect(settings) as other:
        outages.report(other, DOWN, "elsewhere")

    learn(session)
    assert INVENTORY in outages.known(session)


def test_status_and_why_name_the_service_and_the_next_probe(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    job = recording(session)
    attempt(context, job, DOWN)

    health = overview(Site(settings, session), ANN).health
    found = why(Site(settings, session), ANN, job.jid)

    (down,) = health.outages
    assert (down.name, down.message, down.everywhere) == (INVENTORY, DOWN.message, True)
    assert down.next_probe > down.since
    assert HealthProblem(reason=Reason.SERVICE_DOWN, waits_for=INVENTORY) in health.problems
    assert health.waiting == {Reason.SERVICE_DOWN: 1}
    assert (found.reason, found.waits_for, found.outage_since) == (
        Reason.SERVICE_DOWN,
        INVENTORY,
        down.since,
    )
    assert outage_text(down).startswith(f"{INVENTORY} (met on {down.hosts[0]}) for ")


def test_a_job_that_waits_takes_no_place(
    session: Session, context: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = [recording(session) for _ in range(3)]
    assert queue.places_taken(session) == 3

    for job in waiting:
        attempt(context, job, DOWN)

    assert queue.places_taken(session) == 0
    monkeypatch.setattr(queue, "WAITING_LIMIT", 2)
    assert queue.places_taken(session) == 0
    for job in waiting:
        session.ensure_node(paths.reservation(job.jid), b"0")
    assert queue.places_taken(session) == 1  # more than two may not wait with working storage
    for job in waiting:
        session.ask(session.zk.delete_async, paths.reservation(job.jid))
    monkeypatch.setattr(queue, "WAITING_LIMIT", 1000)
    (probe,) = sweep(session, seconds=6)
    assert queue.places_taken(session) == 1
    attempt(context, probe)
    assert queue.places_taken(session) == 1  # now in notify
    assert len(session.children(paths.WAITING)) == 2


def test_a_waiting_job_that_an_operator_fails_waits_no_longer(
    session: Session, context: WorkerContext
) -> None:
    job = recording(session)
    attempt(context, job, DOWN)

    request = jobs.JobMove(Event.FAIL, "ann", lock=record.Lock.BREAK)
    jobs.move(session, jobs.load(session, job.jid), request)

    assert session.children(paths.WAITING) == []
    assert audit(session) == ()


def test_every_working_state_waits_without_a_place(session: Session, context: WorkerContext) -> None:
    for state in JOB.working():
        attempt(context, planting.job_in(session, state), ServiceDown(Service.STORAGE, "is read-only"))

    assert queue.places_taken(session) == 0
    assert audit(session) == ()


def test_an_entry_that_a_release_without_the_list_left_is_removed(
    session: Session, context: WorkerContext
) -> None:
    waiting, moved = recording(session), recording(session)
    attempt(context, waiting, DOWN)
    for jid in (moved.jid, "jid9999999999"):
        session.ensure_node(paths.waiting(jid))

    assert sorted(queue.tidy_waiting(session)) == [moved.jid, "jid9999999999"]

    assert session.children(paths.WAITING) == [waiting.jid]
    assert audit(session) == ()


def test_a_job_that_waits_moves_although_its_entry_is_gone(session: Session, context: WorkerContext) -> None:
    job = recording(session)
    attempt(context, job, DOWN)
    session.ask(session.zk.delete_async, paths.waiting(job.jid))
    assert [finding.path for finding in audit(session)] == [paths.waiting(job.jid)]

    (probe,) = sweep(session, seconds=6)
    attempt(context, probe)

    assert jobs.load(session, job.jid).status.status is JobState.NOTIFY
    assert audit(session) == ()


def test_an_outage_that_nothing_waits_for_ends_within_a_minute_after_its_probe_was_due(
    session: Session,
) -> None:
    outages.report(session, DOWN, "elsewhere")
    assert outages.forget_ended(session, later(session, 60), "sweep") == []
    begun = outage(session)
    assert begun
    assert begun.ended is None

    outages.forget_ended(session, later(session, 66), "sweep")

    over = outage(session)
    assert over
    assert over.ended


def test_the_end_of_an_outage_that_nothing_waits_for_is_not_told_as_a_success(
    session: Session, context: WorkerContext
) -> None:
    outages.report(session, DOWN, "elsewhere")
    outages.forget_ended(session, later(session, 66), "sweep")
    over = outage(session)
    assert over

    silent = of_tasks._notice(context, over)
    outages.report(session, DOWN, "elsewhere")
    assert outages.succeeded(session, INVENTORY, "elsewhere")
    proved = outage(session)
    assert proved
    success = of_tasks._notice(context, proved)

    assert silent["Subject"] == "arkline: inventory is not needed now"
    assert "or has used it since: it may still be away" in silent.get_content()
    assert success["Subject"] == "arkline: inventory works again"
    assert "away" not in success.get_content()


def test_an_outage_that_is_met_again_while_it_is_forgotten_lasts(session: Session) -> None:
    outages.report(session, DOWN, "elsewhere")
    assert outages.end(session, INVENTORY)
    learn(session)

    def met_again(_: Outage) -> None:
        outages.report(session, DOWN, "elsewhere")

    assert outages.forget_ended(session, later(session, 61), "sweep", met_again) == []

    lasting = outage(session)
    assert lasting
    assert lasting.ended is None


def test_an_outage_that_is_probed_while_nothing_seems_to_wait_for_it_lasts(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    outages.report(session, DOWN, "elsewhere")
    learn(session)
    read = dict(outages.known(session))
    assert outages.take_probe(session, read[INVENTORY], later(session, 66))

    with monkeypatch.context() as patch:  # its watch has not fired yet
        patch.setattr(outages, "known", lambda _: read)
        outages.forget_ended(session, later(session, 66), "sweep")

    lasting = outage(session)
    assert lasting
    assert lasting.ended is None


def test_an_outage_that_scheduled_work_still_sees_does_not_end(session: Session) -> None:
    outages.report(session, DOWN, "elsewhere")
    clock = later(session, 64)
    outages.keep(session, INVENTORY, clock)

    outages.forget_ended(session, clock, "sweep")

    lasting = outage(session)
    assert lasting
    assert lasting.ended is None


def test_an_inventory_that_is_older_than_it_was_has_its_own_remedy_in_why_and_status(
    session: Session, settings: Settings
) -> None:
    job = planting.job_in(session, JobState.RECORDING)
    held = planting.acquire(session, job)
    wait = WaitsFor(kind=WaitKind.SERVICE, name=INVENTORY)
    record.hand_back(session, held, "worker", message="away", delay=90, waits_for=wait)
    outages.report(session, DOWN, "host")
    outages.report(session, outdated(Service.INVENTORY, "inv", "its mark is 187"), "host")
    site = Site(settings, session)

    found, view = why(site, ANN, job.jid), overview(site, ANN)
    status = cli.run(settings, "status").out

    reconcile = Remedy(Action.RECONCILE)
    assert (found.moves_itself, found.remedies[0]) == (False, reconcile)
    problem = HealthProblem(reason=Reason.SERVICE_DOWN, waits_for=INVENTORY, remedies=(reconcile,))
    assert problem in view.health.problems
    for shown in (explanation.text(found), status):
        remedy = "restored from a backup: put the newer data back, or repair the inventory"
        assert remedy in " ".join(shown.split())
        assert "arkline check --repair: compare record" in shown
        assert "see to it that the database answers" not in shown
