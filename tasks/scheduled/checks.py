"""Checks of stored versions that are repeated, and the notices of findings: a run of the schedule.

One process of the fleet checks at a time, at the rate of fixity checks, for at most fixity.RUN_SECONDS and no
longer than fixity.SHARE_SECONDS if jobs wait for a process of its queue. Requests come first; then the checks
take turns, a version each. While a check does not work on this host, its versions are left to another run,
perhaps of another host.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial

from pipeline.attempt import Attempt
from pipeline.checking import again
from pipeline.checking.again import NotRechecked, Rechecked, Rechecking, Round
from pipeline.checks import CheckRule, CheckVerdict
from pipeline.errors import UsageRefused
from pipeline.fixity import OnRead
from pipeline.notify.mail import check_notice
from pipeline.outcome import AttemptOver, Service, ServiceDown, StepFailed
from pipeline.preservation.fixity import Pace
from pipeline.profiles.profile import ProfileError
from pipeline.records import now
from pipeline.steps.context import Clients
from pipeline.working_storage import capacity, mount
from tasks.logs import log
from tasks.scheduled.fixity import MESSAGE_LIMIT, NOTICES, Turn
from tasks.worker_context import WorkerContext
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session
from zkstate.fleet import notes, rechecks
from zkstate.fleet.notes import RepeatedCheck
from zkstate.fleet.places import place_of_check
from zkstate.fleet.rechecks import AskedRecheck, RecheckProblem
from zkstate.record import space
from zkstate.record.space import WorkingStorage

WORK = "checks"
"""The name of the work, which one process of the fleet does at a time."""

EXPIRES = timedelta(days=7)
"""Workers try to fulfil a request to check an object again for so long."""

MAX_FAILURES = 3
"""Versions in succession that could not be checked, after which a check's turn ends."""


def run(context: WorkerContext, session: Session, _: ServerClock) -> None:
    try:
        _check_outdated(context, session)
        send_notices(context.clients())  # also of deposits
    except StepFailed as failure:  # of the inventory or of working storage; another run follows in a minute
        log().warning("checks of stored versions wait", error=failure.message)
    except AttemptOver as over:
        log().info("checks of stored versions end", reason=str(over))


def _check_asked(
    session: Session, clients: Clients, checking: Rechecking, waiting: Iterable[AskedRecheck]
) -> None:
    """Fulfil requests, the oldest first; one whose check does not work here waits for another host."""
    for asked in waiting:
        if checking.over():
            return
        if asked.at < now() - EXPIRES:
            message = f"no worker checked it within {EXPIRES.days} days: {asked.message or 'none had time'}"
            rechecks.update(session, asked, ended=now(), message=message)
            continue
        try:
            _fulfil(session, clients, checking, asked)
        except ServiceDown as down:
            if down.service is not Service.CHECK:
                raise
            log().warning("check of a stored object waits", ark=asked.ark, problem=down.message)
            rechecks.update(session, asked, message=down.message[:MESSAGE_LIMIT])


def _fulfil(session: Session, clients: Clients, checking: Rechecking, asked: AskedRecheck) -> None:
    """Check what was not checked since the request began; if the time is over, the next run continues."""
    known = clients.inventory.describe_object(asked.ark)
    if known is None:
        rechecks.update(session, asked, ended=now(), message=f"the inventory has no object {asked.ark}")
        return
    if asked.began is None:
        asked = asked.model_copy(update={"began": now()})
        rechecks.update(session, asked, began=asked.began)
    try:
        rules = again.rules_of(clients.profiles, known, asked.check)
    except (UsageRefused, ProfileError) as refusal:
        rechecks.update(session, asked, ended=now(), message=str(refusal)[:MESSAGE_LIMIT])
        return
    problems = []
    for version in known.versions:
        done = {run.check for run in version.checks if asked.is_met_by(run)}
        for rule in (rule for rule in rules if rule.name not in done):
            outcome = checking.check(asked.ark, version.number, rule)
            if outcome is None:
                return
            log_outcome(outcome)
            if isinstance(outcome, NotRechecked):
                problem = outcome.problem[: rechecks.MESSAGE_LIMIT]
                problems.append(RecheckProblem(version=version.number, check=rule.name, problem=problem))
    first = tuple(problems[: rechecks.PROBLEMS])
    rechecks.update(session, asked, ended=now(), message="", problems=first)


def _check_outdated(context: WorkerContext, session: Session) -> None:
    clients = context.clients()
    before = {one.check: one for one in notes.repeated_checks(session)}
    rules, asked = again.repeated(clients.profiles), rechecks.waiting(session)
    if not rules and not before and not asked:
        return
    guard = AttemptGuard(session, context.stopping)
    turn = Turn(context.settings, guard)
    on_read = Pace(context.settings.fixity_rate, stopped=turn.stopped).read
    checking = rechecking(session, clients, guard, on_read, turn.over, folder="scheduled")
    _check_asked(session, clients, replace(checking, folder="asked"), asked)
    turns = [_Turns(checking, name, own, before.get(name)) for name, own in rules.items()]
    waiting = turns
    while waiting and not turn.over():
        waiting = [one for one in waiting if one.step()]
    notes.note_repeated_checks(session, tuple(note for one in turns if (note := one.note())))


def rechecking(
    session: Session,
    clients: Clients,
    attempt: Attempt,
    on_read: OnRead,
    over: Callable[[], bool],
    *,
    folder: str,
) -> Rechecking:
    """Checks stored versions with this process's clients; StepFailed if working storage is unavailable."""
    mount.require(clients.settings, WorkingStorage(session))
    return Rechecking(
        inventory=clients.inventory,
        storage=clients.storage,
        checker=clients.checker,
        working=clients.settings.working,
        attempt=attempt,
        refusal=partial(_refusal, session, clients),
        on_read=on_read,
        over=over,
        place=partial(place_of_check, session, WORK, attempt),
        folder=folder,
    )


def _refusal(session: Session, clients: Clients, need: int) -> str | None:
    """Why so many bytes do not fit into working storage beside the jobs."""
    reservations = partial(space.reservations, session)
    return capacity.refusal(need, space.promised(session).bytes, reservations, clients.settings)


class _Turns:
    """The turns of one check in a run of the schedule."""

    def __init__(
        self, rechecking: Rechecking, check: str, rules: Mapping[str, CheckRule], before: RepeatedCheck | None
    ) -> None:
        self._check = check
        self._before = before
        self._failures = 0
        self._problem = ""
        self._files = {verdict.value: getattr(before, verdict.value, 0) for verdict in CheckVerdict}
        self._round: Round | None = None
        try:
            self._round = Round(rechecking, check, rules, before.position if before else 0)
        except ServiceDown as down:
            self._end(down)

    def _end(self, down: ServiceDown) -> None:
        """End the turns of the check if it is away; other outages end the run."""
        if down.service is not Service.CHECK:
            raise down
        log().warning("check of stored versions waits", check=self._check, problem=down.message)
        self._problem = down.message

    def step(self) -> bool:
        """Check one version; False if the check has no further turn."""
        if self._round is None:
            return False
        try:
            outcome = self._round.step()
        except ServiceDown as down:
            self._end(down)
            return False
        if outcome is None:
            return False
        log_outcome(outcome)
        if isinstance(outcome, Rechecked):
            self._failures = 0
            for verdict, number in outcome.run.counts().items():
                self._files[verdict.value] += number
            return True
        self._failures += 1
        self._problem = f"{outcome.ark}: {outcome.problem}"
        return self._failures < MAX_FAILURES

    def note(self) -> RepeatedCheck | None:
        """For the status; of a check that does not work on this host, what another host noted."""
        problem = self._problem[:MESSAGE_LIMIT]
        if self._round is None:
            return self._before and self._before.model_copy(update={"problem": problem})
        return RepeatedCheck(
            check=self._check,
            version=self._round.version,
            outstanding=self._round.outstanding(),
            position=self._round.position,
            problem=problem,
            **self._files,
        )


def log_outcome(outcome: Rechecked | NotRechecked) -> None:
    if isinstance(outcome, NotRechecked):
        problem = outcome.problem
        log().warning("version cannot be checked", ark=outcome.ark, check=outcome.check, problem=problem)
        return
    counts = outcome.run.counts()
    facts = {"ark": outcome.ark, "version": outcome.version, "check": outcome.run.check}
    if outcome.newly_found:
        log().error("a check found something in a stored version", **facts, files=counts[CheckVerdict.FOUND])
    else:
        log().info("stored version checked again", **facts, files=sum(counts.values()))


def send_notices(clients: Clients) -> None:
    """Send the notices of findings; after a crash between mail and entry, the mail is sent again."""
    for run in clients.inventory.unreported_runs(NOTICES):
        try:
            clients.mailer.send(check_notice(run, clients.settings))
        except StepFailed as failure:
            log().warning("notice not sent; the next run sends it", ark=run.ark, error=failure.message)
            return
        clients.inventory.mark_run_reported(run.id, now())
