"""Checks record, storage and inventory: finds what is wrong in them, and repairs what can be repaired.

Rule: the marks of record and inventory are made equal last. If one of them was restored, the fleet waits
until then, so no job is given a name that belongs to a version in storage which the inventory does not know
yet.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain

from operations.checks import stores
from operations.checks.differences import (
    BROKEN,
    Comparison,
    Difference,
    NotCompared,
    Numbers,
    Search,
    StoreProblem,
)
from operations.run import UNWATCHED, Run, Stopped
from operations.site import Site
from pipeline import plugins
from pipeline.attempt import UNATTENDED
from pipeline.errors import UsageRefused
from pipeline.outcome import ServiceDown, StepFailed
from pipeline.principal import Principal, Role
from pipeline.records import Record, now
from pipeline.steps.context import open_clients
from tasks.stores import expected_of
from zkstate.care import audit, deployment
from zkstate.connection.locks import exclusive
from zkstate.errors import Unreachable
from zkstate.fleet import holds, notes
from zkstate.fleet.notes import LastAudit
from zkstate.queue import listings
from zkstate.record.journal import JournalAction, Stamp

LISTED = 1_000
"""Maximum number of differences that a result lists; all are counted."""

LOCK_WAIT = 5.0
"""Seconds to wait for another repair to finish."""


class Scope(StrEnum):
    """What is checked."""

    ALL = "all"
    """The record, and everything that record, storage and inventory know."""
    JOBS = "jobs"
    """The record, and the versions of the jobs that it has."""
    RECORD = "record"
    """The record alone; no store is opened."""


class CheckView(Record):
    repair: bool
    compared: int
    """Versions in storage, entries of the inventory, and completed jobs that were compared."""
    counts: dict[StoreProblem, int]
    repaired: dict[StoreProblem, int]
    differences: tuple[Difference, ...]
    """At most LISTED."""
    listed: bool
    """False if the storage service cannot list its objects: versions that no store knows are not found."""
    not_compared: tuple[NotCompared, ...]
    unreachable: str = ""
    """Why storage or inventory could not be compared."""
    complete: bool
    """False if it was stopped; the same command continues, because what is repaired is no difference."""

    @property
    def broken(self) -> bool:
        """Storage does not have what was stored."""
        return any(gap in BROKEN for gap in self.counts)

    @property
    def left(self) -> int:
        return sum(self.counts.values()) - sum(self.repaired.values())


def check(  # noqa: PLR0913 - the options of one verb
    site: Site,
    principal: Principal,
    scope: Scope = Scope.ALL,
    *,
    reason: str = "",
    content: bool = False,
    repair: bool = False,
    run: Run = UNWATCHED,
) -> CheckView:
    """Compare everything in `scope`; with `repair`, enter, reserve and raise what can be repaired.

    `content`: read every byte of the versions. Safe beside a running fleet. A complete check of the stores
    saves its time and the number of remaining differences for the metrics.
    """
    principal.require(Role.OPERATOR, "check the stores")

    def on_tick(compared: int) -> None:
        run.check("interrupted")
        run.on_progress(compared, 0)

    one = _Check(site, Stamp.of(principal, reason), scope, content=content, repair=repair, on_tick=on_tick)
    alone = (
        exclusive(site.session, "single-flight", "reconcile", UNATTENDED, LOCK_WAIT)
        if repair
        else nullcontext()
    )
    try:
        with alone:
            one.compare()
        view = one.view()
        if view.complete and not view.unreachable and scope is not Scope.RECORD:
            notes.AUDIT.publish(site.session, LastAudit(at=now(), findings=view.left))
    except Unreachable as away:  # what was compared and repaired before is reported nevertheless
        if not one.comparing:
            raise
        return one.view().model_copy(update={"unreachable": str(away)})
    return view


@dataclass
class _Check:
    """One check: counts the differences, and repairs them one at a time."""

    site: Site
    stamp: Stamp
    scope: Scope
    content: bool
    repair: bool
    on_tick: Callable[[int], None]
    _compared: int = 0
    _counts: Counter[StoreProblem] = field(default_factory=Counter)
    _repaired: Counter[StoreProblem] = field(default_factory=Counter)
    _differences: list[Difference] = field(default_factory=list)
    _listed: bool = True
    _complete: bool = True
    _unreachable: str = ""
    _began: bool = False
    comparing: bool = False
    """Whether the stores are being compared: the record was read."""

    def view(self) -> CheckView:
        return CheckView(
            repair=self.repair,
            compared=self._compared,
            counts=dict(self._counts),
            repaired=dict(self._repaired),
            differences=tuple(self._differences),
            listed=self._listed,
            not_compared=tuple(self._not_compared()),
            unreachable=self._unreachable,
            complete=self._complete,
        )

    def _not_compared(self) -> Iterator[NotCompared]:
        if not self._listed:
            yield NotCompared.UNKNOWN_VERSIONS
        if self.scope is Scope.ALL and plugins.choosing(plugins.INVENTORY):
            yield NotCompared.INVENTORY_SERVICE

    def compare(self) -> None:
        session = self.site.session
        if self.scope is Scope.ALL and deployment.read(session) is None:
            raise UsageRefused(
                f"the record {session.hosts}{session.root} has no deployment id: restore it from a backup, "
                "or initialize it with the stores that are there"
            )
        for finding in audit.audit(session):
            gap = StoreProblem.INCONSISTENT
            self._take(Comparison(Difference(gap=gap, path=finding.path, reason=finding.problem)))
        self.comparing = True
        try:
            for comparison in self._comparisons():
                self._take(comparison)
        except Stopped:
            self._complete = False
        except (StepFailed, UsageRefused) as fault:
            self._unreachable = str(fault)
        if self._repaired.total():
            done = ", ".join(f"{gap} {number}" for gap, number in sorted(self._repaired.items()) if number)
            self._record(done)

    def _comparisons(self) -> Iterator[Comparison]:
        session = self.site.session
        if self.scope is Scope.RECORD:
            return iter(())
        recorded, failed = listings.recorded_jobs(session), listings.failed_jobs(session)
        if self.scope is Scope.ALL:
            search = self._search()
            self._listed = listed = stores.lists_objects(search)
            names = recorded if listed else [*recorded, *failed]
            return chain(
                stores.stored_versions(search) if listed else (),
                stores.entries(search, listed=listed),
                stores.jobs_of_record(search, names, listed=listed),
                stores.archived_jobs(search, listed=listed),
                stores.behind(search),
                stores.reserved(search),
                stores.marks(search),
            )
        names = [*recorded, *failed]
        return stores.jobs_of_record(self._search(), names, with_entries=True) if names else iter(())

    def _search(self) -> Search:
        session, settings = self.site.session, self.site.settings
        clients = open_clients(settings, expected_of(session))
        return Search(
            session,
            settings,
            clients.storage,
            clients.inventory,
            f"arkline {self.stamp.by}",
            self._tick,
            Numbers(stores.shoulders(session, settings)),
            self.content,
        )

    def _tick(self, number: int) -> None:
        self._compared += number
        self.on_tick(self._compared)

    def _take(self, comparison: Comparison) -> None:
        difference = comparison.difference
        if self.repair and comparison.repair is not None:
            difference = self._repair_one(difference, comparison.repair)
        self._counts[difference.gap] += 1
        self._repaired[difference.gap] += difference.repaired
        if len(self._differences) < LISTED:
            self._differences.append(difference)

    def _repair_one(self, difference: Difference, repair: Callable[[], None]) -> Difference:
        """Repair one difference. The journal records the act before its effect, and the totals afterwards."""
        if not self._began:
            self._began = True
            self._record("")
        try:
            repair()
        except ServiceDown:
            raise
        except StepFailed as failure:
            return difference.model_copy(update={"reason": failure.message})
        return difference.model_copy(update={"repaired": True})

    def _record(self, target: str) -> None:
        holds.record_action(self.site.session, JournalAction.RECONCILE, self.stamp, target)
