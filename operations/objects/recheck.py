"""Runs the checks of the current profile again on stored objects, for a person who asks for it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from operations.objects.objects import known_object
from operations.run import UNWATCHED, Run
from operations.site import Site
from pipeline.attempt import CheckedAttempt
from pipeline.checking.again import NotRechecked, Rechecked, Rechecking
from pipeline.checks import CheckRule, CheckSummary
from pipeline.errors import UsageRefused
from pipeline.inventory.base import InventoryObject
from pipeline.outcome import AttemptOver
from pipeline.preservation.fixity import Pace
from pipeline.principal import Principal, Role
from pipeline.profiles.profile import Profiles
from pipeline.steps.context import open_clients
from tasks.checks import WORK, rechecking, send_notices
from tasks.stores import expected_of
from zkstate.connection.locks import exclusive

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
    planned = [(known, rules_for(clients.profiles, known, check)) for known in objects]

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


def rules_for(profiles: Profiles, known: InventoryObject, check: str | None) -> tuple[CheckRule, ...]:
    """The checks of the collection of the latest version; UsageRefused if there are none."""
    collection = known.versions[-1].profile
    rules = profiles.get(collection).checks
    chosen = tuple(rule for rule in rules if check in (None, rule.name))
    if not chosen:
        names = ", ".join(rule.name for rule in rules) or "none"
        what = "checks" if check is None else f"check {check}"
        raise UsageRefused(
            f"the profile {collection}, of {known.ark}, has no {what} (it has: {names}): add it to `checks`"
        )
    return chosen


def _outcomes(checking: Rechecking, known: InventoryObject, rules: Sequence[CheckRule]) -> Iterator[Outcome]:
    for version in known.versions:
        for rule in rules:
            outcome = checking.check(known.ark, version.number, rule)
            if isinstance(outcome, Rechecked):
                yield CheckedVersion(outcome.ark, outcome.version, CheckSummary.of(outcome.run))
            elif outcome is not None:
                yield outcome
