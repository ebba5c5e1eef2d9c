"""Reconciles record, storage and inventory: finds what each of them knows alone, and repairs what it can.

Rule: the marks of record and inventory are made equal last. If one of them was restored, the fleet waits
until then, so no job is given a name that a version in storage has and the inventory does not know yet.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain

from operations import reconcile_jobs, reconcile_numbers, reconcile_versions
from operations.operator import Operator, Stopped
from operations.reconciliation import (
    BROKEN,
    Comparison,
    Difference,
    Gap,
    NotCompared,
    Numbers,
    Search,
)
from pipeline.attempt import UNATTENDED
from pipeline.errors import UsageRefused
from pipeline.outcome import ServiceDown, StepFailed
from pipeline.records import Record
from pipeline.steps.clients import open_clients
from tasks.stores import expected_of
from zkstate import deployment, holds
from zkstate.journal import JournalAction
from zkstate.locks import exclusive

LISTED = 1_000
"""Differences that a result lists; all of them are counted."""

LOCK_WAIT = 5.0
"""Seconds to wait for another repair to end."""


class ReconcileView(Record):
    repair: bool
    compared: int
    """Versions in storage, entries of the inventory, and completed jobs that were compared."""
    counts: dict[Gap, int]
    repaired: dict[Gap, int]
    differences: tuple[Difference, ...]
    """At most LISTED."""
    listed: bool
    """False if the storage service cannot list its objects: versions that no store knows are not found."""
    not_compared: tuple[NotCompared, ...]
    complete: bool
    """False if it was stopped; the same command continues, because what is repaired is no difference."""

    @property
    def broken(self) -> bool:
        """Storage does not have what was stored."""
        return any(gap in BROKEN for gap in self.counts)

    @property
    def left(self) -> int:
        return sum(self.counts.values()) - sum(self.repaired.values())


def reconcile(
    operator: Operator,
    *,
    repair: bool = False,
    on_progress: Callable[[int], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> ReconcileView:
    """Compare everything, and with `repair` enter, reserve and raise what can be repaired.

    Safe beside a running fleet. ServiceDown if a store is absent or belongs to another deployment.
    """
    operator.require("reconcile the stores")
    session = operator.session
    own = deployment.read(session)
    if own is None:
        raise UsageRefused(
            f"the record {session.hosts}{session.root} has no deployment id: restore it from a backup, or "
            "initialize it with the stores that are there"
        )
    compared = 0

    def tick() -> None:
        nonlocal compared
        if stopped():
            raise Stopped("interrupted")
        compared += 1
        on_progress(compared)

    clients = open_clients(operator.settings, expected_of(session))
    search = Search(
        session,
        operator.settings,
        clients.storage,
        clients.inventory,
        f"arkline {operator.by}",
        tick,
        Numbers(reconcile_numbers.shoulders(session, operator.settings)),
    )
    listed = reconcile_versions.lists_objects(search)
    result = _Result(operator, repair=repair)
    alone = (
        exclusive(session, "single-flight", "reconcile", UNATTENDED, LOCK_WAIT) if repair else nullcontext()
    )
    complete = True
    with alone:
        try:
            for comparison in _compare(search, listed=listed):
                result.take(comparison)
        except Stopped:
            complete = False
        result.conclude()
    return ReconcileView(
        repair=repair,
        compared=compared,
        counts=dict(result.counts),
        repaired=dict(result.repaired),
        differences=tuple(result.differences),
        listed=listed,
        not_compared=tuple(_not_compared(operator, listed=listed)),
        complete=complete,
    )


def _not_compared(operator: Operator, *, listed: bool) -> Iterator[NotCompared]:
    if not listed:
        yield NotCompared.UNKNOWN_VERSIONS
    if operator.settings.inventory_service_url:
        yield NotCompared.INVENTORY_SERVICE


def _compare(search: Search, *, listed: bool) -> Iterator[Comparison]:
    return chain(
        reconcile_versions.stored_versions(search) if listed else (),
        reconcile_versions.entries(search, listed=listed),
        reconcile_jobs.completed_jobs(search, listed=listed),
        reconcile_numbers.behind(search),
        reconcile_numbers.reserved(search),
        reconcile_numbers.marks(search),
    )


class _Result:
    """Counts the differences, and repairs them one by one."""

    def __init__(self, operator: Operator, *, repair: bool) -> None:
        self._operator = operator
        self._repair = repair
        self.counts: Counter[Gap] = Counter()
        self.repaired: Counter[Gap] = Counter()
        self.differences: list[Difference] = []
        self._began = False

    def take(self, comparison: Comparison) -> None:
        difference = comparison.difference
        if self._repair and comparison.repair is not None:
            difference = self._repaired(difference, comparison.repair)
        self.counts[difference.gap] += 1
        self.repaired[difference.gap] += difference.repaired
        if len(self.differences) < LISTED:
            self.differences.append(difference)

    def _repaired(self, difference: Difference, repair: Callable[[], None]) -> Difference:
        """The journal has the act before its effect, and its sum afterwards."""
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

    def conclude(self) -> None:
        if self.repaired.total():
            done = ", ".join(f"{gap} {number}" for gap, number in sorted(self.repaired.items()) if number)
            self._record(done)

    def _record(self, target: str) -> None:
        holds.record_action(self._operator.session, JournalAction.RECONCILE, self._operator.stamp, target)
