"""Runs the checks of the current profile again on stored objects, for a person who asks for it.

Beside the stack the command checks them itself, on this host; over the API it is a request that a worker
fulfils.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import Field

from operations.objects.fixity import ProofState
from operations.objects.objects import known_object
from operations.run import UNWATCHED, Run
from operations.site import Site
from pipeline.attempt import CheckedAttempt
from pipeline.checking import again
from pipeline.checking.again import NotRechecked, Rechecked, Rechecking
from pipeline.checks import CheckRule, CheckSummary
from pipeline.errors import UsageRefused
from pipeline.inventory.base import InventoryObject
from pipeline.outcome import AttemptOver
from pipeline.preservation.fixity import Pace
from pipeline.principal import Principal, Role
from pipeline.profiles.profile import ProfileError
from pipeline.records import Record, now
from pipeline.steps.context import open_clients
from tasks.scheduled.checks import WORK, rechecking, send_notices
from tasks.scheduled.fixity import request_run
from tasks.stores import expected_of
from zkstate.connection.locks import exclusive
from zkstate.errors import Missing
from zkstate.fleet import rechecks
from zkstate.fleet.rechecks import AskedRecheck

LOCK_WAIT = 180.0
"""Seconds to wait for scheduled checks, which take at most a minute and the file at hand."""


@dataclass(frozen=True)
class CheckedVersion:
    ark: str
    version: int
    summary: CheckSummary


@dataclass(frozen=True)
class RecheckRun:
    """What a person's request to check stored objects again found."""

    checked: tuple[CheckedVersion, ...]
    not_checked: tuple[NotRechecked, ...]
    complete: bool
    """False if it was interrupted; the same request continues."""


Outcome = CheckedVersion | NotRechecked


def recheck(
    site: Site,
    principal: Principal,
    names: Sequence[str],
    check: str | None,
    *,
    on_outcome: Callable[[Outcome], None],
    run: Run = UNWATCHED,
) -> RecheckRun:
    """Run the named check, or all of the profile, over every version of the objects.

    UsageRefused if the profile has no such check; ServiceDown if a check does not work on this host. One
    process of the fleet checks stored versions at a time; this waits for scheduled work to end.
    """
    principal.require(Role.OPERATOR, "check stored objects again")
    clients = open_clients(site.settings, expected_of(site.session))
    objects = [known_object(clients.inventory, name) for name in dict.fromkeys(names)]
    planned = [(known, again.rules_of(clients.profiles, known, check)) for known in objects]

    def check_if_asked() -> None:
        if run.should_stop():
            raise AttemptOver("interrupted")

    pace, add = Pace(site.settings.fixity_rate, stopped=run.should_stop), run.adding()

    def on_read(size: int) -> None:
        add(size)
        pace.read(size)

    attempt = CheckedAttempt(check_if_asked)
    outcomes: list[Outcome] = []
    try:
        checking = rechecking(site.session, clients, attempt, on_read, run.should_stop, folder="asked")
        with exclusive(site.session, "single-flight", WORK, attempt, LOCK_WAIT):
            for known, rules in planned:
                for outcome in _outcomes(checking, known, rules):
                    on_outcome(outcome)
                    outcomes.append(outcome)
            send_notices(clients)
    except AttemptOver:
        complete = False
    else:
        complete = not run.should_stop()
    finally:
        clients.checker.close()
    checked = tuple(outcome for outcome in outcomes if isinstance(outcome, CheckedVersion))
    not_checked = tuple(outcome for outcome in outcomes if isinstance(outcome, NotRechecked))
    return RecheckRun(checked, not_checked, complete)


class Recheck(Record):
    """A request to check an object again, and how far a worker is with the work."""

    id: str
    ark: str
    check: str | None = Field(None, description="null: all checks of the profile.")
    state: ProofState = ProofState.WAITING
    asked: datetime
    began: datetime | None = None
    ended: datetime | None = None
    message: str = Field("", description="Why nothing was checked, or what it waits for.")
    checked: tuple[CheckedVersion, ...] = Field((), description="The runs since it began.")
    not_checked: tuple[NotRechecked, ...] = Field((), description="Versions that could not be checked.")


def start_recheck(site: Site, principal: Principal, known: InventoryObject, check: str | None) -> Recheck:
    """Request that a worker checks the object again, or return the pending request for the same.

    UsageRefused if the profile has no such check; `too-many-rechecks`.
    """
    collection = known.versions[-1].profile
    principal.require(Role.OPERATOR, f"check {known.ark} again", collection)
    again.rules_of(site.profiles, known, check)
    new = AskedRecheck(id=secrets.token_hex(8), ark=known.ark, check=check, by=principal.identity, at=now())
    asked = rechecks.ask(site.session, new)
    request_run(site.settings, WORK)
    return _shown(asked, known)


def checks_of(site: Site, known: InventoryObject) -> tuple[str, ...]:
    """The checks of the object's profile; empty if it has none, or cannot be read."""
    try:
        return tuple(rule.name for rule in again.rules_of(site.profiles, known, None))
    except (UsageRefused, ProfileError):
        return ()


def recheck_of(site: Site, recheck_id: str, known: InventoryObject) -> Recheck:
    """The request; Missing if this object has no such request, or no longer has it."""
    asked = rechecks.find(site.session, recheck_id)
    if asked is None or asked.ark != known.ark:
        raise Missing(f"there is no request {recheck_id} to check {known.ark} again: make a new one")
    return _shown(asked, known)


def _shown(asked: AskedRecheck, known: InventoryObject) -> Recheck:
    runs = (
        CheckedVersion(known.ark, version.number, run)
        for version in known.versions
        for run in version.checks
        if asked.is_met_by(run)
    )
    problems = tuple(NotRechecked(known.ark, one.version, one.check, one.problem) for one in asked.problems)
    return Recheck(
        id=asked.id,
        ark=asked.ark,
        check=asked.check,
        state=_state(asked),
        asked=asked.at,
        began=asked.began,
        ended=asked.ended,
        message=asked.message,
        checked=tuple(runs),
        not_checked=problems,
    )


def _state(asked: AskedRecheck) -> ProofState:
    if asked.ended is not None:
        return ProofState.FAILED if asked.message else ProofState.DONE
    return ProofState.WAITING if asked.began is None else ProofState.RUNNING


def _outcomes(checking: Rechecking, known: InventoryObject, rules: Sequence[CheckRule]) -> Iterator[Outcome]:
    for version in known.versions:
        for rule in rules:
            outcome = checking.check(known.ark, version.number, rule)
            if isinstance(outcome, Rechecked):
                yield CheckedVersion(outcome.ark, outcome.version, CheckSummary.of(outcome.run))
            elif outcome is not None:
                yield outcome
