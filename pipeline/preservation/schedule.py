"""The fixity schedule: every stored file is read again within the period of its collection.

The object whose period ends first is next. It is read once LEAD of its period is over, so that there is time
left for a slow storage, for an outage, and for objects whose periods end together.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from pipeline import records
from pipeline.errors import ArklineError
from pipeline.fixity import OnRead, ignore
from pipeline.inventory import fixity
from pipeline.inventory.fixity import FixityCheck, Moment, ScheduleCounts
from pipeline.inventory.sql import SqlInventory
from pipeline.preservation.fixity import check_object
from pipeline.preservation.pace import Pace
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.settings import Settings
from pipeline.storage.base import Storage

LEAD = 0.75

MAX_FAILURES = 3
"""Objects that cannot be read, after which a run ends: storage itself is at fault then."""


@dataclass(frozen=True)
class Unreadable:
    """An object that could not be checked, because storage or the inventory failed."""

    ark: str
    problem: str


def periods(inventory: SqlInventory, profiles: Profiles, settings: Settings) -> dict[str, timedelta]:
    """Collection -> period, of the collections whose objects are scheduled."""
    days = {name: fixity_days(name, profiles, settings) for name in fixity.scheduled_profiles(inventory)}
    return {name: timedelta(days=number) for name, number in days.items() if number}


def fixity_days(profile_name: str, profiles: Profiles, settings: Settings) -> int:
    """Days of the collection's period, 0 if its objects are not scheduled."""
    try:
        own = profiles.get(profile_name).fixity_days
    except ProfileError:
        own = None
    return settings.fixity_days if own is None else own


@dataclass(frozen=True)
class Schedule:
    inventory: SqlInventory
    storage: Storage
    profiles: Profiles
    settings: Settings
    agent: str
    """The program and the process or person that checks, for the events."""

    def periods(self) -> dict[str, timedelta]:
        return periods(self.inventory, self.profiles, self.settings)

    def counts(self, now: datetime) -> ScheduleCounts:
        return fixity.counts(self.inventory, self.periods(), now)

    def run(
        self, pace: Pace, now: Callable[[], datetime], on_read: OnRead = ignore, lead: float = LEAD
    ) -> Iterator[FixityCheck | Unreadable]:
        """Check every object that is due, or until `pace` is over; an interrupted object continues."""
        fixity.add_new_objects(self.inventory)
        own_periods = self.periods()
        began = records.now()
        skip: set[str] = set()
        while not pace.over() and len(skip) < MAX_FAILURES:
            moment = Moment(now(), began)
            due = fixity.next_due(self.inventory, own_periods, moment, lead, skip)
            if due is None:
                return
            outcome = self.check(due.ark, pace, on_read)
            if isinstance(outcome, Unreadable):
                skip.add(due.ark)
            if outcome is not None:
                yield outcome

    def check(self, ark: str, pace: Pace, on_read: OnRead = ignore) -> FixityCheck | Unreadable | None:
        """Check one object now; None if `pace` was over first."""
        try:
            return check_object(self.inventory, self.storage, ark, pace, self.agent, on_read)
        except ArklineError as error:
            return Unreadable(ark, str(error))
