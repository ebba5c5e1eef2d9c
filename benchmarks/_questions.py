"""What scheduled work, pages and commands ask an inventory, and the rows that each of the questions reads.

The rows are those of the scans in PostgreSQL's plan as executed: unlike seconds, they do not depend on what
else the machine does.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, event

from pipeline.inventory import fixity, scheduled
from pipeline.inventory.fixity import Moment
from pipeline.inventory.search.by_findings import FindingSearch
from pipeline.inventory.sight import EVERYTHING, Sight
from pipeline.inventory.sql import SqlInventory
from pipeline.records import now

PERIOD = timedelta(days=365)
PAGE = 50
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Known:
    """An object of the inventory, and who sees it."""

    ark: str
    local_id: str
    jid: str
    profile: str
    depositor: str


@dataclass(frozen=True)
class Answer:
    ms: float
    """Of the statements."""
    rows: int
    plans: tuple[str, ...]
    """Of the statements that take more than SLOW."""


SLOW = 100.0
"""Milliseconds."""

Question = Callable[[SqlInventory], object]


def questions(known: Known, newest: int = scheduled.NEWEST) -> dict[str, Question]:
    """By who asks; `newest`: the objects that a run of the fixity schedule looks at."""
    at = now()
    return {**_scheduled(known, at, newest), **_shown(known, at)}


def _scheduled(known: Known, at: datetime, newest: int) -> dict[str, Question]:
    def due(inventory: SqlInventory) -> object:
        profiles = dict.fromkeys(fixity.scheduled_profiles(inventory), PERIOD)
        return fixity.next_due(inventory, profiles, Moment(at, at), 0.75, set())

    def counts(inventory: SqlInventory) -> object:
        return fixity.counts(inventory, dict.fromkeys(fixity.scheduled_profiles(inventory), PERIOD), at)

    return {
        "check_stores: last job": lambda inventory: inventory.last_job(),
        "check_stores: last batch": lambda inventory: inventory.last_batch(),
        "check_stores: newest versions": lambda inventory: inventory.newest_versions(10),
        "fixity: objects that the schedule lacks": lambda inventory: inventory.schedule_newest(newest),
        "fixity: collections": fixity.scheduled_profiles,
        "fixity: next object": due,
        "fixity: sums": counts,
        "fixity: notices": lambda inventory: fixity.unreported(inventory, 20),
        "proofs": fixity.next_asked_proofs,
        "checks: notices": lambda inventory: inventory.unreported_runs(20),
        "checks: older versions": lambda inventory: inventory.older_versions("clamav", "1"),
        "embargoes": lambda inventory: inventory.unread_embargoes(0, 500),
        "index_objects": lambda inventory: inventory.unindexed_versions(),
        "growth": lambda inventory: inventory.count_portion(),
        "growth: last day": lambda inventory: inventory.space_by_day(1),
    }


def _shown(known: Known, at: datetime) -> dict[str, Question]:
    own, collection = Sight(depositor=known.depositor), Sight(collections=frozenset({known.profile}))

    def found(sight: Sight, text: str) -> Question:
        def search(inventory: SqlInventory) -> object:
            hits = inventory.objects_by_text(text, FindingSearch(), sight, PAGE)
            return inventory.found_objects(FindingSearch(), [hit.key for hit in hits])

        return search

    def listed(sight: Sight) -> Question:
        def page(inventory: SqlInventory) -> object:
            keys = inventory.objects_with(FindingSearch(), sight, PAGE)
            return inventory.found_objects(FindingSearch(), keys)

        return page

    return {
        "objects": listed(EVERYTHING),
        "objects of a collection": listed(collection),
        "objects of a collection without objects": listed(Sight(collections=frozenset({"none"}))),
        "objects of a depositor": listed(own),
        "objects: how many are indexed": lambda inventory: inventory.indexing(),
        "search: an identifier": found(EVERYTHING, known.ark),
        "search: an identifier, depositor": found(own, known.local_id),
        "object by ARK": lambda inventory: inventory.describe_object(known.ark),
        "object by local id": lambda inventory: inventory.objects_named(known.local_id),
        "object by a part of its ARK": lambda inventory: inventory.arks_identified(known.ark[11:]),
        "object: is it seen": lambda inventory: inventory.is_seen(known.ark, own),
        "object: placement": lambda inventory: inventory.placement_of(known.ark),
        "files of a job": lambda inventory: inventory.files_of_job(known.jid, 100),
        "report of a collection: days": lambda inventory: inventory.days_of_collection(known.profile),
        "report of a collection: formats": lambda inventory: inventory.formats_of_collection(known.profile),
        "report of a collection: is it complete": lambda inventory: inventory.all_counted(),
        "report of a collection: fixity": lambda inventory: fixity.of_collection(
            inventory, known.profile, PERIOD, 0.75, at
        ),
        "forecast of storage": lambda inventory: inventory.bytes_by_day(at.date() - timedelta(days=485)),
        "forecast of storage: first day": lambda inventory: inventory.first_day(),
        "home: an hour": lambda inventory: inventory.stored_between(at - 2 * HOUR, at - HOUR),
        "home: batches": lambda inventory: inventory.stored_of_batches(at - HOUR),
        "fixity: damage": lambda inventory: fixity.damage(inventory, 100),
        "deposit: known identifiers": lambda inventory: inventory.known_arks([known.ark]),
    }


def answers(inventory: SqlInventory, asked: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
    for name, question in asked.items():
        question(inventory)  # reads the pages from the disk
        with _statements(inventory) as statements:
            question(inventory)
        planned = [(ms, *_executed(inventory, *statement)) for ms, *statement in statements]
        yield (
            name,
            Answer(
                ms=round(sum(ms for ms, _, _ in planned), 1),
                rows=sum(rows for _, rows, _ in planned),
                plans=tuple(plan for ms, _, plan in planned if ms > SLOW),
            ),
        )


@contextmanager
def _statements(inventory: SqlInventory) -> Iterator[list[tuple[float, str, Any]]]:
    """(milliseconds, statement, values) of what is asked in the block."""
    asked: list[tuple[float, str, Any]] = []
    began = [0.0]

    def begin(*_: Any) -> None:
        began[0] = time.perf_counter()

    def end(connection: Any, cursor: Any, statement: str, values: Any, *_: Any) -> None:
        if statement.startswith(("SELECT", "INSERT", "WITH")):
            asked.append((1000 * (time.perf_counter() - began[0]), statement, values))

    engine = inventory.database.read(lambda connection: connection.engine)
    event.listen(engine, "before_cursor_execute", begin)
    event.listen(engine, "after_cursor_execute", end)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", begin)
        event.remove(engine, "after_cursor_execute", end)


def _executed(inventory: SqlInventory, statement: str, values: Any) -> tuple[int, str]:
    """The rows that the statement reads, and its plan, executed again and rolled back."""

    def execute(connection: Connection) -> tuple[int, str]:
        asked = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
        answer = connection.exec_driver_sql(asked, values).scalar_one()
        plan = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
        connection.rollback()
        return sum(_read(plan)), f"{statement}\n" + "\n".join(_lines(plan, 0))

    with inventory.database.read(lambda connection: connection.engine).connect() as connection:
        return execute(connection)


def _read(plan: Mapping[str, Any]) -> Iterator[int]:
    if "Scan" in plan["Node Type"] and "Plans" not in plan:
        removed = sum(plan.get(f"Rows Removed by {name}", 0) for name in ("Filter", "Index Recheck"))
        yield int((plan["Actual Rows"] + removed) * plan["Actual Loops"])
    for part in plan.get("Plans", ()):
        yield from _read(part)


def _lines(plan: Mapping[str, Any], depth: int) -> Iterator[str]:
    place = plan.get("Index Name") or plan.get("Relation Name") or ""
    yield (
        f"{'  ' * depth}{plan['Node Type']} {place}: {plan['Actual Rows']} rows x {plan['Actual Loops']}, "
        f"{plan['Actual Total Time']:.0f} ms"
    )
    for part in plan.get("Plans", ()):
        yield from _lines(part, depth + 1)
