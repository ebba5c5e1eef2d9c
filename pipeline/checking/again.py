"""Checks stored versions again whose last run of a check is outdated, as the current profiles say.

A version is read from storage one file at a time, into working storage, and compared with its digests on the
way. Only a complete run is entered; the findings so far are kept in working storage, and the next call
continues after them. A version that cannot be read stays outdated, and the versions after it are checked.
"""

import secrets
import shutil
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pipeline import checks
from pipeline.attempt import Attempt
from pipeline.checking import journal, running
from pipeline.checking.process import Checker
from pipeline.checking.running import Checking, HoldPlace
from pipeline.checking.stored import StoredFiles
from pipeline.checks import Action, Again, CheckedFile, CheckRule, CheckRun, CheckVerdict
from pipeline.errors import ArklineError, UsageRefused
from pipeline.fixity import OnRead
from pipeline.inventory.base import InventoryObject, InventoryVersion
from pipeline.inventory.outdated import Outdated, OutdatedVersion
from pipeline.inventory.sql import SqlInventory
from pipeline.names import PRODUCER
from pipeline.outcome import AttemptOver, Service, ServiceDown
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.records import now
from pipeline.storage.base import Storage
from pipeline.working_storage.capacity import no_room
from pipeline.working_storage.workspace import Workspace

FOLDER = "checked-again"
"""The folder in working storage for the files at hand and the findings of unfinished runs."""

AT_A_TIME = 100
"""Outdated versions that one query reads."""


@dataclass(frozen=True)
class Rechecked:
    """A complete run over a stored version, which the inventory has."""

    ark: str
    version: int
    run: CheckRun
    newly_found: bool
    """The run found something, and the last run before it found nothing."""


@dataclass(frozen=True)
class NotRechecked:
    """A stored version that could not be read or checked now."""

    ark: str
    version: int
    check: str
    problem: str


class _Over(Exception):
    """The time of the work is over; what it found is kept."""


@dataclass(frozen=True)
class Rechecking:
    """Where the stored versions are, and what checks them."""

    inventory: SqlInventory
    storage: Storage
    checker: Checker
    working: Path
    attempt: Attempt
    refusal: Callable[[int], str | None]
    """Why so many bytes do not fit into working storage now; None if they do."""
    on_read: OnRead
    """Receives the number of bytes of each piece, and waits as long as the rate requires."""
    over: Callable[[], bool]
    """Once true, the work ends before the next file."""
    place: HoldPlace
    folder: str
    """The name of the work: each continues its own unfinished run of a check."""

    def version_of(self, rule: CheckRule) -> str:
        """The version of the check on this host; ServiceDown if the check does not work here."""
        return running.version_of(self._checking(rule), rule)

    def check(self, ark: str, number: int, rule: CheckRule) -> Rechecked | NotRechecked | None:
        """Check a version; None if the inventory has no such version, or if the time was over first.

        ServiceDown if the check does not work on this host, or lacks its service.
        """
        try:
            known = self.inventory.describe_object(ark)
            version = next((one for one in known.versions if one.number == number), None) if known else None
            run = self._run(ark, version, rule) if version else None
            if version is None or run is None:
                return None
            newly_found = _found_now(version, run)
            noticed = run.model_copy(update={"notice": newly_found and rule.on_found is not Action.NOTE})
            self.inventory.add_checks(ark, number, (noticed,))
        except AttemptOver:
            raise
        except ServiceDown as down:
            if down.service is Service.CHECK:
                raise
            return NotRechecked(ark, number, rule.name, str(down))
        except ArklineError as error:
            return NotRechecked(ark, number, rule.name, str(error))
        return Rechecked(ark, number, run, newly_found)

    def _checking(self, rule: CheckRule) -> Checking:
        workspace = Workspace(self.working / FOLDER / f"{self.folder}-{rule.name}", secrets.token_hex(8))
        return Checking((rule,), self.checker, workspace, self.attempt, (), self.place)

    def _run(self, ark: str, version: InventoryVersion, rule: CheckRule) -> CheckRun | None:
        """The complete run; None if the time was over first."""
        checking = self._checking(rule)
        workspace = checking.workspace
        files = tuple(_files(version, workspace.attempt / "stored"))
        shutil.rmtree(workspace.attempt.parent, ignore_errors=True)  # of a process that died
        journal.tidy(workspace.folder, journal.content_of(files))
        stored = StoredFiles.of(self.storage, ark, version.storage_url, version.number)

        @contextmanager
        def at_hand(file: CheckedFile) -> Iterator[CheckedFile]:
            if self.over():
                raise _Over
            if (why := self.refusal(file.size)) is not None:
                raise no_room(why)
            try:
                stored.copy(file, workspace, self.attempt, self.on_read)
                yield file
            finally:
                file.source.unlink(missing_ok=True)

        try:
            run = running.run_again(checking, rule, files, at_hand)
        except _Over:
            return None
        shutil.rmtree(workspace.folder, ignore_errors=True)
        return run


def rules_of(profiles: Profiles, known: InventoryObject, check: str | None) -> tuple[CheckRule, ...]:
    """The checks of the collection of the latest version; UsageRefused if there are none.

    They need not be installed on this host.
    """
    collection = known.versions[-1].profile
    rules = profiles.get(collection, elsewhere=True).checks
    chosen = tuple(rule for rule in rules if check in (None, rule.name))
    if not chosen:
        names = ", ".join(rule.name for rule in rules) or "none"
        what = "checks" if check is None else f"check {check}"
        raise UsageRefused(
            f"the profile {collection}, of {known.ark}, has no {what} (it has: {names}): add it to `checks`"
        )
    return chosen


def _found_now(version: InventoryVersion, run: CheckRun) -> bool:
    before = [summary for summary in version.checks if summary.check == run.check]
    was_found = bool(before) and max(before, key=lambda summary: summary.at).found > 0
    return bool(run.counts()[CheckVerdict.FOUND]) and not was_found


def _files(version: InventoryVersion, folder: Path) -> Iterator[CheckedFile]:
    """The deposited files that the version added, in the order of storage; what is older is checked there."""
    for file in sorted(version.files, key=lambda file: file.path):
        if file.added and file.path.startswith(PRODUCER):
            path = file.path.removeprefix(PRODUCER)
            yield CheckedFile(path, folder / path, file.size, file.digest.partition(":")[2])


def repeated(profiles: Profiles) -> dict[str, dict[str, CheckRule]]:
    """Check -> collection -> its rule, for the checks that are repeated.

    A check that is not installed on this host, or does not work there, may be one of them.
    """
    rules = defaultdict[str, dict[str, CheckRule]](dict)
    for name in profiles.names():
        try:
            profile = profiles.get(name, elsewhere=True)
        except ProfileError:
            continue  # its deposits say so, and the check of the profile
        for rule in profile.checks:
            try:
                kind = checks.installed(rule)
            except UsageRefused:
                kind = None  # its turn ends with the reason
            if kind is None or rule.checked_again(kind) is not Again.NEVER:
                rules[rule.name][name] = rule
    return rules


class Round:
    """The outdated versions of one check, in their order, from a position on."""

    def __init__(
        self, rechecking: Rechecking, check: str, rules: Mapping[str, CheckRule], position: int = 0
    ) -> None:
        """`rules` by collection. ServiceDown if the check does not work on this host."""
        self._rechecking = rechecking
        self._rules = rules
        self._next = deque[OutdatedVersion]()
        self.check = check
        self.position = position
        """The key of the last outdated run that was tried; 0 at the end of the round."""
        self.version = ""
        """The installed version."""
        self._outdated = tuple(self._choices())

    def _choices(self) -> Iterator[Outdated]:
        collections = defaultdict[str, list[str]](list)
        for profile, rule in self._rules.items():
            collections[rule.model_dump_json()].append(profile)
        for profiles in collections.values():
            rule = self._rules[profiles[0]]
            self.version = self._rechecking.version_of(rule)
            if isinstance(rule.again, int):
                yield Outdated(tuple(profiles), before=now() - timedelta(days=rule.again))
            elif older := self._rechecking.inventory.older_versions(self.check, self.version):
                yield Outdated(tuple(profiles), versions=older)

    def outstanding(self) -> int:
        """The number of outdated versions."""
        inventory = self._rechecking.inventory
        return inventory.count_outdated(self.check, self._outdated) if self._outdated else 0

    def step(self) -> Rechecked | NotRechecked | None:
        """Check the next version; None at the end of the round, or if the time was over first."""
        inventory = self._rechecking.inventory
        while self._outdated:
            if not self._next:
                self._next.extend(
                    inventory.next_outdated(self.check, self._outdated, self.position, AT_A_TIME)
                )
            if not self._next:
                break
            one = self._next[0]
            outcome = self._rechecking.check(one.ark, one.number, self._rules[one.profile])
            if outcome is None and self._rechecking.over():
                return None
            self.position = one.run
            self._next.popleft()
            if outcome is not None:
                return outcome
        self.position = 0
        return None
