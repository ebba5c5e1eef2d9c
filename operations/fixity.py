"""The fixity schedule for people: its report, and checks that a person asks for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from operations.objects import known_object
from operations.operator import Operator
from pipeline.attempt import CheckedAttempt
from pipeline.fixity import OnRead
from pipeline.inventory import fixity
from pipeline.inventory.base import PreservationEvent
from pipeline.inventory.fixity import FixityCheck, ScheduleCounts
from pipeline.inventory.sql import SqlInventory
from pipeline.outcome import AttemptOver
from pipeline.preservation.fixity import LEAD, Pace, Unreadable, periods
from pipeline.profiles.profile import Profiles
from pipeline.records import now
from pipeline.settings import Settings
from pipeline.steps.clients import open_clients
from tasks.fixity import LOCK, conclude, schedule_of
from tasks.stores import expected_of
from zkstate.locks import exclusive

REPORTED = 100
"""Damaged objects that a report names."""

LOCK_WAIT = 180.0
"""Seconds to wait for a scheduled check, which ends within a minute."""


@dataclass(frozen=True)
class FixityReport:
    counts: ScheduleCounts
    periods: dict[str, int]
    """Collection -> days within which every file is read again."""
    damage: tuple[PreservationEvent, ...]
    """The last event of every damaged object; at most REPORTED."""


@dataclass(frozen=True)
class FixityRun:
    """The result of a check that a person asked for."""

    checked: tuple[FixityCheck, ...]
    unreadable: tuple[Unreadable, ...]
    complete: bool
    """False if it was interrupted; the next check continues."""

    @property
    def damaged(self) -> tuple[FixityCheck, ...]:
        return tuple(check for check in self.checked if check.damaged)


def fixity_report(inventory: SqlInventory, settings: Settings) -> FixityReport:
    fixity.add_new_objects(inventory)
    own_periods = periods(inventory, Profiles(settings.profiles), settings)
    return FixityReport(
        counts=fixity.counts(inventory, own_periods, now()),
        periods={name: period.days for name, period in own_periods.items()},
        damage=fixity.damage(inventory, REPORTED),
    )


def check_fixity(
    operator: Operator,
    names: Sequence[str],
    *,
    every: bool,
    on_read: OnRead,
    on_check: Callable[[FixityCheck | Unreadable], None],
    stopped: Callable[[], bool],
) -> FixityRun:
    """Check the named objects; without names, those that are due or, with `every`, all.

    One check runs in the fleet at a time, so that the rate of the settings holds: this waits for a scheduled
    check to end.
    """
    operator.require("check fixity")
    clients = open_clients(operator.settings, expected_of(operator.session))
    arks = [known_object(clients.inventory, name).ark for name in dict.fromkeys(names)]
    schedule = schedule_of(clients, f"arkline {operator.by}")
    checked: list[FixityCheck] = []
    unreadable: list[Unreadable] = []
    pace = Pace(operator.settings.fixity_rate, stopped)

    def check_if_asked() -> None:
        if stopped():
            raise AttemptOver("interrupted while waiting for a scheduled check")

    attempt = CheckedAttempt(check_if_asked)
    try:
        with exclusive(operator.session, "single-flight", LOCK, attempt, LOCK_WAIT):
            outcomes = (
                (outcome for ark in arks if (outcome := schedule.check(ark, pace, on_read)))
                if arks
                else schedule.run(pace, now, on_read, 0 if every else LEAD)
            )
            for outcome in outcomes:
                on_check(outcome)
                checked.append(outcome) if isinstance(outcome, FixityCheck) else unreadable.append(outcome)
            conclude(operator.session, schedule, clients, now(), (*checked, *unreadable))
    except AttemptOver:
        return FixityRun((), (), complete=False)
    return FixityRun(tuple(checked), tuple(unreadable), complete=not stopped())
