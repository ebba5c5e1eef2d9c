"""Fixity checks: a run of the schedule, and a run of the requested proofs, the oldest first.

A run of the schedule begins no file after RUN_SECONDS, nor either of them after SHARE_SECONDS if jobs wait
for a process of their queue: so the checks take little from the jobs, and are never starved by them; a file
that was begun is read to its end. Only one process of the fleet reads for proofs at a time. The schedule's
run publishes the sums and sends the notices of all damage.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import redis
from kombu.exceptions import OperationalError
from pydantic import TypeAdapter

from pipeline.inventory.fixity import (
    AskedProof,
    FixityCheck,
    begin_proof,
    count_proof_bytes,
    end_proof,
    mark_reported,
    next_asked_proofs,
    unreported,
)
from pipeline.inventory.sql import SqlInventory
from pipeline.machine import Queue
from pipeline.notify.mail import fixity_notice
from pipeline.notify.notification import event_of
from pipeline.notify.subscription import EventKind
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.preservation.custody import Custody, agree
from pipeline.preservation.fixity import Pace, Schedule, Unreadable
from pipeline.records import now
from pipeline.settings import Settings
from pipeline.steps.context import Clients
from tasks.broker import publisher, waiting_messages
from tasks.logs import log
from tasks.worker_context import WorkerContext
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session
from zkstate.fleet import notes
from zkstate.fleet.notes import FixityStatus
from zkstate.record import subscriptions

QUEUE = Queue.PROCESS
"""The queue of the task: its processes read and hash."""

LOCK = "fixity"
"""The name under which one process of the fleet checks at a time, so that its rate is the fleet's rate."""

RUN_SECONDS = 50.0
SHARE_SECONDS = 5.0
ASK_INTERVAL = 5.0
"""Seconds between two counts of the waiting messages."""

NOTICES = 20
"""Maximum notices that one run sends; the rest are sent by the next runs."""

MESSAGE_LIMIT = 500
"""Maximum characters of a fault in the published status."""


def run(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    schedule = schedule_of(context.clients(), f"arkline {context.name}")
    try:
        _check_due(context, session, clock, schedule)
    except StepFailed as failure:  # of the inventory; another run follows in a minute
        log().warning("the fixity schedule waits", error=failure.message)
        before = notes.fixity(session)
        notes.note_fixity(session, before.model_copy(update={"problem": failure.message[:MESSAGE_LIMIT]}))


def _check_due(context: WorkerContext, session: Session, clock: ServerClock, schedule: Schedule) -> None:
    turn = Turn(context.settings, AttemptGuard(session, context.stopping))
    outcomes = []
    pace = Pace(context.settings.fixity_rate, turn.over, turn.stopped)
    for outcome in schedule.run(pace, lambda: _time(clock)):
        log_outcome(outcome)
        outcomes.append(outcome)
    conclude(session, schedule, context.clients(), _time(clock), outcomes)


def schedule_of(clients: Clients, agent: str) -> Schedule:
    return Schedule(clients.inventory, clients.storage, clients.profiles, clients.settings, agent)


def log_outcome(outcome: FixityCheck | Unreadable) -> None:
    if isinstance(outcome, Unreadable):
        log().warning("object cannot be checked", ark=outcome.ark, problem=outcome.problem)
    elif outcome.damaged:
        damage = outcome.damaged[0]
        log().error("damage in storage", ark=outcome.ark, problems=len(outcome.damaged), first=damage.what)
    else:
        log().info("object proved", ark=outcome.ark, files=outcome.files, bytes=outcome.bytes)


def conclude(
    session: Session,
    schedule: Schedule,
    clients: Clients,
    at: datetime,
    outcomes: Sequence[FixityCheck | Unreadable],
) -> None:
    """Publish the sums, then send the notices that are due. The caller has the lock of the schedule."""
    counts = schedule.counts(at)
    before = notes.fixity(session)
    checks = [outcome for outcome in outcomes if isinstance(outcome, FixityCheck)]
    problems = [outcome.problem for outcome in outcomes if isinstance(outcome, Unreadable)]
    damaged = sum(len(check.damaged) for check in checks)
    read = sum(check.files for check in checks)
    notes.note_fixity(
        session,
        FixityStatus(
            objects=counts.objects,
            damaged=counts.damaged,
            overdue=counts.overdue,
            oldest=counts.oldest,
            files_intact=before.files_intact + max(0, read - damaged),
            files_damaged=before.files_damaged + damaged,
            problem=problems[-1][:MESSAGE_LIMIT] if problems else "",
        ),
    )
    send_notices(session, clients)


def send_notices(session: Session, clients: Clients) -> None:
    """Send the notices of events; after a crash between mail and entry, the mail is sent again."""
    for event in unreported(clients.inventory, NOTICES):
        mail = fixity_notice(event, clients.settings)
        subscriptions.enter(session, event_of(mail, EventKind.FIXITY, event.ark, event.id, event.at))
        try:
            clients.mailer.send(mail)
        except StepFailed as failure:
            log().warning("notice not sent; the next run sends it", ark=event.ark, error=failure.message)
            return
        mark_reported(clients.inventory, (event.id,), now())


@dataclass
class Turn:
    """Decides when a run has to end."""

    settings: Settings
    guard: AttemptGuard
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._began = self._asked = self.clock()
        self._over = False

    def over(self) -> bool:
        return self.must_yield() or self.clock() - self._began > RUN_SECONDS

    def stopped(self) -> bool:
        """Whether the worker stops, or its locks may be lost."""
        try:
            self.guard.check()
        except AttemptOver:
            return True
        return False

    def must_yield(self) -> bool:
        """Whether the worker stops, or jobs wait for its process and the run has had its share."""
        if self.stopped():
            return True
        elapsed = self.clock() - self._began
        if elapsed > SHARE_SECONDS and self.clock() - self._asked > ASK_INTERVAL:
            self._asked = self.clock()
            self._over = self._jobs_wait()
        return self._over

    def _jobs_wait(self) -> bool:
        try:
            return waiting_messages(self.settings, (QUEUE,)) > 0
        except redis.RedisError:
            return False


def _time(clock: ServerClock) -> datetime:
    return datetime.fromtimestamp(clock.now_ms() / 1000, UTC)


WORK = "proofs"
"""The name of the work on proofs, which one process of the fleet runs at a time."""

PROGRESS_INTERVAL = 1.0
"""Seconds between two updates of the bytes that a proof has read."""

RESULT_LIMIT = 64_000_000
"""Maximum characters of the result of a proof."""

EXPIRY = 60
"""Seconds after which an unconsumed message is no longer needed: beat has started a run."""

_CUSTODY = TypeAdapter(Custody)


def request_run(settings: Settings, work: str) -> None:
    """Have a worker start a run of the work now instead of within a minute; without Redis, beat starts it."""
    try:
        publisher(settings).send_task(f"beat.{work}", expires=EXPIRY)
    except OperationalError as error:
        log().warning("no run requested; beat begins one", work=work, error=str(error))


def run_proofs(context: WorkerContext, session: Session, _: ServerClock) -> None:
    turn = Turn(context.settings, AttemptGuard(session, context.stopping))
    try:
        _prove_all(context, turn)
    except StepFailed as failure:  # of the inventory; another run follows in a minute
        log().warning("proofs wait", error=failure.message)


def _prove_all(context: WorkerContext, turn: Turn) -> None:
    schedule = schedule_of(context.clients(), f"arkline {context.name}")
    inventory = schedule.inventory
    while not turn.must_yield() and (asked := next_asked_proofs(inventory)):
        for one in asked:
            begin_proof(inventory, one, now())
        pace = Pace(0, turn.must_yield, turn.stopped)
        proved = schedule.prove(asked[0].ark, pace, _Progress(inventory, asked).read)
        if proved is None:
            return
        log_outcome(proved if isinstance(proved, Unreadable) else proved[0])
        for one in asked:
            end_proof(inventory, one, now(), _result(proved, one))


def _result(proved: tuple[FixityCheck, Custody | None] | Unreadable, asked: AskedProof) -> dict[str, object]:
    if isinstance(proved, Unreadable):
        return {"message": proved.problem}
    check, custody = proved
    if custody is None:
        return {"message": check.damaged[0].what}
    files = tuple(file for file in custody.files if file.version == asked.version)
    agrees = agree(files, custody.description)
    own = replace(custody, versions=(asked.version,), files=files, agrees=agrees)
    text = _CUSTODY.dump_json(own).decode()
    if len(text) > RESULT_LIMIT:
        return {"message": f"the result has {len(files):,} files, too many to be kept"}
    return {"custody": text, "bytes_read": check.bytes}


class _Progress:
    """Counts the bytes that are read for proofs, and stores the number every PROGRESS_INTERVAL."""

    def __init__(self, inventory: SqlInventory, asked: Sequence[AskedProof]) -> None:
        self._inventory = inventory
        self._asked = asked
        self._read = asked[0].bytes_read
        self._entered = time.monotonic()

    def read(self, size: int) -> None:
        self._read += size
        if time.monotonic() - self._entered > PROGRESS_INTERVAL:
            self._entered = time.monotonic()
            for one in self._asked:
                count_proof_bytes(self._inventory, one, self._read)
