"""Fixity checks: reads objects again, in the order in which they are due, and enters the outcome.

Rule: nothing is repaired. Damage counts only if a second reading of the same bytes confirms it, and only if
storage as a whole can be read, so that unmounting a disk is not taken for damage of its objects.

The object whose period ends first is next. It is read once the fraction LEAD of its period has passed, which
leaves time for slow storage, for an outage, and for objects whose periods end together.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from pipeline import records
from pipeline.errors import ArklineError
from pipeline.fixity import OnRead, ReadBackFile, ignore
from pipeline.inventory import fixity
from pipeline.inventory.base import DamagedFile, InventoryObject
from pipeline.inventory.fixity import FixityCheck, Moment, ScheduleCounts
from pipeline.inventory.sql import SqlInventory
from pipeline.outcome import DamagedObject
from pipeline.preservation.custody import RESTORE_OBJECT, Custody, Reading, prove
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.records import now
from pipeline.settings import Settings
from pipeline.storage.base import Storage

LONGEST_SLEEP = 0.5
"""Maximum seconds between two checks whether to stop, while reading is throttled."""

SHORTEST_SLEEP = 0.01
"""Seconds; shorter waits are accumulated, because a system cannot sleep so briefly."""


class Pace:
    """A rate limit of `rate` bytes per second (0: no limit), and when to end.

    Reading ends at once when `stopped` is true, and after the file at hand when `over` is: a file that takes
    longer than a run would otherwise never be read, nor would the objects that are due after it. Time in
    which nothing is read is not credited: a pause is not followed by a burst.
    """

    def __init__(
        self,
        rate: int,
        over: Callable[[], bool] = lambda: False,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._rate = rate
        self._over = over
        self.stopped = stopped
        self._next = time.monotonic()

    def over(self) -> bool:
        return self.stopped() or self._over()

    def read(self, size: int) -> None:
        """Count `size` bytes, and wait until the rate allows more."""
        if not self._rate:
            return
        self._next = max(self._next, time.monotonic() - SHORTEST_SLEEP) + size / self._rate
        while (left := self._next - time.monotonic()) > SHORTEST_SLEEP and not self.stopped():
            time.sleep(min(left, LONGEST_SLEEP))


KEEP_INTERVAL = 60.0
"""Seconds between saves of results: the reading that a crash may cost."""


class _Reading:
    """The reading of one object, including the stored results of an interrupted reading."""

    def __init__(self, schedule: "Schedule", known: InventoryObject, pace: Pace, on_read: OnRead) -> None:
        self._inventory = schedule.inventory
        self._storage = schedule.storage
        self._known = known
        self._pace = pace
        self._on_read = on_read
        self._began = now()
        self._reads = fixity.reads_of(schedule.inventory, known.ark)
        self._unstored: list[ReadBackFile] = []
        self._stored_at = time.monotonic()
        self.custody: Custody | None = None
        """The custody of all versions; None if the files cannot be listed."""

    def run(self) -> FixityCheck | None:
        try:
            damaged = self._damage()
            if damaged:
                for _, place in damaged:  # to be read again
                    self._reads.pop(place, None)
                damaged = self._damage()
        except BaseException:
            self._keep()
            raise
        if damaged is None:
            self._keep()
            return None
        known = self._known
        files = {file.digest: file.size for version in known.versions for file in version.files}
        return FixityCheck(
            ark=known.ark,
            profile=known.versions[-1].profile,
            began=min((read.at for read in self._reads.values()), default=self._began),
            ended=now(),
            versions=len(known.versions),
            files=sum(len(version.files) for version in known.versions),
            bytes=sum(files.values()),
            damaged=tuple(damage for damage, _ in damaged),
        )

    def _damage(self) -> list[tuple[DamagedFile, str]] | None:
        """The damage, with the places of the damaged bytes; None if the reading was stopped."""
        known = self._known
        numbers = tuple(version.number for version in known.versions)
        try:
            pace = self._pace
            reading = Reading(self._on_piece, pace.stopped, pace.over, self._reads, self._on_file)
            custody = self.custody = prove(known, numbers, self._storage, reading)
        except DamagedObject as damage:
            self.custody = None
            return [(DamagedFile(0, "", damage.message, RESTORE_OBJECT), "")]
        if not custody.complete:
            return None
        described = ((DamagedFile(0, "", one.what, one.remedy), "") for one in custody.description)
        return [*_damaged_files(custody), *described]

    def _on_piece(self, size: int) -> None:
        self._on_read(size)
        self._pace.read(size)

    def _on_file(self, file: ReadBackFile) -> None:
        if file.problem or file.place in self._reads:
            return
        self._reads[file.place] = file
        self._unstored.append(file)
        if time.monotonic() - self._stored_at > KEEP_INTERVAL:
            self._keep()

    def _keep(self) -> None:
        fixity.keep_reads(self._inventory, self._known.ark, self._unstored)
        self._unstored, self._stored_at = [], time.monotonic()


def _damaged_files(custody: Custody) -> list[tuple[DamagedFile, str]]:
    return [
        (
            DamagedFile(file.version, file.path, problem.what, problem.remedy),
            file.now.place if file.now else "",
        )
        for file in custody.files
        for problem in file.problems
    ]


LEAD = 0.75

MAX_FAILURES = 3
"""Unreadable objects after which a run ends, because storage itself must be at fault."""


@dataclass(frozen=True)
class Unreadable:
    """An object that could not be checked because storage or the inventory failed."""

    ark: str
    problem: str


def periods(inventory: SqlInventory, profiles: Profiles, settings: Settings) -> dict[str, timedelta]:
    """Collection -> period, for the collections whose objects are scheduled."""
    days = {name: fixity_days(name, profiles, settings) for name in fixity.scheduled_profiles(inventory)}
    return {name: timedelta(days=number) for name, number in days.items() if number}


def fixity_days(profile_name: str, profiles: Profiles, settings: Settings) -> int:
    """Days in the collection's period; 0 if its objects are not scheduled."""
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
    """The program, and the process or person, that performs the checks; for events."""

    def periods(self) -> dict[str, timedelta]:
        return periods(self.inventory, self.profiles, self.settings)

    def counts(self, now: datetime) -> ScheduleCounts:
        return fixity.counts(self.inventory, self.periods(), now)

    def run(
        self, pace: Pace, now: Callable[[], datetime], on_read: OnRead = ignore, lead: float = LEAD
    ) -> Iterator[FixityCheck | Unreadable]:
        """Check every due object until `pace` is over; an interrupted check of an object is continued."""
        self.inventory.schedule_newest()
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
        proved = self.prove(ark, pace, on_read)
        return proved[0] if isinstance(proved, tuple) else proved

    def prove(
        self, ark: str, pace: Pace, on_read: OnRead = ignore
    ) -> tuple[FixityCheck, Custody | None] | Unreadable | None:
        """Like `check`, with the custody of all versions, or None if the files cannot be listed.

        If storage cannot be read, nothing is entered. The next call continues a reading that `pace` ended.
        """
        try:
            known = self.inventory.describe_object(ark)
            if known is None or not known.versions:
                return None
            reading = _Reading(self, known, pace, on_read)
            check = reading.run()
            if check is None:
                return None
            fixity.complete(self.inventory, check, self.agent)
        except ArklineError as error:
            return Unreadable(ark, str(error))
        return check, reading.custody
