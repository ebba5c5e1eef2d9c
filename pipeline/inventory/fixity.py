"""The fixity schedule in the inventory: the last proof of each object, unfinished checks, and damage.

Rule: a proof is as old as the first byte that was read for it. An event is entered when the outcome changes,
not for every check, so the number of an object's events is bounded by its changes of state.

A proof of custody is a fixity check on request; its result is kept.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from pipeline import codes, records
from pipeline.errors import ArklineError
from pipeline.fixity import ReadBackFile
from pipeline.inventory import tables
from pipeline.inventory.base import DamagedFile, PreservationEvent
from pipeline.inventory.columns import distinct_values
from pipeline.inventory.description import FAIL, FIXITY_CHECK, PASS, preservation_event
from pipeline.inventory.recording import enter_event
from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.tables import (
    events,
    fixities,
    fixity_reads,
    growth,
    objects,
    portions,
    proofs,
)

READS_PER_STATEMENT = 1_000

MAX_DETAIL = 100
"""Maximum damaged files that an event names; the event always has their number."""

CLOCK_ERROR = timedelta(days=1)
"""Tolerance for clocks: a period that begins even later than this was written by a wrong clock, and the
object is due."""


@dataclass(frozen=True)
class FixityCheck:
    """A complete reading of an object."""

    ark: str
    profile: str
    """The collection of the latest version."""
    began: datetime
    """When the first of its bytes was read, perhaps by an earlier, interrupted attempt."""
    ended: datetime
    versions: int
    files: int
    bytes: int
    damaged: tuple[DamagedFile, ...]


@dataclass(frozen=True)
class DueObject:
    ark: str
    due: datetime
    """The end of its period."""


@dataclass(frozen=True)
class Moment:
    """The time at which the next object is chosen, by two clocks, because either may be wrong."""

    now: datetime
    """Now by the fleet's clock, which decides which periods have ended."""
    began: datetime
    """When this run began, by the clock of this process; objects checked since then are not due again."""


@dataclass(frozen=True)
class ScheduleCounts:
    objects: int
    """Those that were counted as they were stored."""
    damaged: int
    """Objects whose last check found damage."""
    overdue: int
    """Objects that were not read within their period."""
    oldest: datetime | None
    """When the oldest current period began."""


def scheduled_profiles(inventory: SqlInventory) -> tuple[str, ...]:
    """The collections of the objects in the schedule."""
    return inventory.database.read(lambda connection: tuple(distinct_values(connection, fixities.c.profile)))


def next_due(
    inventory: SqlInventory,
    periods: Mapping[str, timedelta],
    moment: Moment,
    lead: float,
    skip: Collection[str],
) -> DueObject | None:
    """The object whose period ends first, if the fraction `lead` of the period has passed.

    `periods`: by collection; objects of other collections are not scheduled. `lead`: from 0 (every object is
    due) to 1. `skip`: ARKs to leave out.
    """
    checked = fixities.c.checked
    not_in_this_run = or_(checked.is_(None), checked < moment.began, checked > records.now() + CLOCK_ERROR)

    def read(connection: Connection) -> list[DueObject]:
        candidates = []
        for profile, period in periods.items():
            since = fixities.c.since
            late = or_(since < moment.now - lead * period, since > moment.now + CLOCK_ERROR)
            row = connection.execute(
                select(objects.c.ark, since)
                .join(objects, objects.c.id == fixities.c.inv_object_id)
                .where(fixities.c.profile == profile, late, not_in_this_run, objects.c.ark.not_in(skip))
                .order_by(since)
                .limit(1)
            ).one_or_none()
            if row is not None:
                candidates.append(DueObject(row.ark, row.since + period))
        return candidates

    return min(inventory.database.read(read), key=lambda candidate: candidate.due, default=None)


def counts(inventory: SqlInventory, periods: Mapping[str, timedelta], now: datetime) -> ScheduleCounts:
    """The state of the whole schedule; `periods` as in `next_due`."""

    def read(connection: Connection) -> ScheduleCounts:
        total = select(func.sum(growth.c.objects)).where(growth.c.profile.in_(periods))
        oldest = (
            connection.scalar(select(func.min(fixities.c.since)).where(fixities.c.profile == profile))
            for profile in periods
        )
        overdue = sum(
            connection.scalar(
                select(func.count()).where(fixities.c.profile == profile, fixities.c.since < now - period)
            )
            or 0
            for profile, period in periods.items()
        )
        damaged = connection.scalar(select(func.count(fixities.c.inv_object_id)).where(_DAMAGED))
        objects_stored = int(connection.scalar(total) or 0)
        return ScheduleCounts(objects_stored, damaged or 0, overdue, min(filter(None, oldest), default=None))

    return inventory.database.read(read)


COUNTED, SHOWN_DAMAGED = 10_000, 10
"""Maximum objects of a collection that are counted, as a count reads each of them, and that are named."""


@dataclass(frozen=True)
class CollectionFixity:
    """How the objects of a collection stand in the schedule. No count exceeds COUNTED."""

    last_checked: datetime | None  # when an object was last read
    oldest: datetime | None  # when the oldest current period began
    due: int
    """Objects that are read next; 0 without a period."""
    overdue: int
    """Objects that were not read within their period."""
    damaged: int
    damaged_objects: tuple[str, ...]
    """The first ARKs of these."""


def of_collection(
    inventory: SqlInventory, profile: str, period: timedelta | None, lead: float, now: datetime
) -> CollectionFixity:
    """`period`: None if the objects are not scheduled; `lead` as in `next_due`."""
    own, since = fixities.c.profile == profile, fixities.c.since

    def read(connection: Connection) -> CollectionFixity:
        def count(condition: ColumnElement[bool]) -> int:
            some = select(fixities.c.inv_object_id).where(own, condition).limit(COUNTED).subquery()
            return connection.scalar(select(func.count()).select_from(some)) or 0

        damaged = select(objects.c.ark).join(fixities, fixities.c.inv_object_id == objects.c.id)
        return CollectionFixity(
            last_checked=connection.scalar(select(func.max(fixities.c.checked)).where(own)),
            oldest=connection.scalar(select(func.min(since)).where(own)),
            due=count(since < now - lead * period) if period else 0,
            overdue=count(since < now - period) if period else 0,
            damaged=count(_DAMAGED),
            damaged_objects=tuple(connection.scalars(damaged.where(own, _DAMAGED).limit(SHOWN_DAMAGED))),
        )

    return inventory.database.read(read)


_DAMAGED = literal_column("inv_fixities.damaged") > literal_column("0")
"""With a literal, so that the index of damaged objects is used."""


def reads_of(inventory: SqlInventory, ark: str) -> dict[str, ReadBackFile]:
    """Place -> result, for the files that an interrupted check has read."""
    query = select(fixity_reads).join(objects, objects.c.id == fixity_reads.c.inv_object_id)
    rows = inventory.database.read(
        lambda connection: connection.execute(query.where(objects.c.ark == ark)).all()
    )
    return {
        row.place: ReadBackFile(0, "", row.at, row.size, row.sha512, row.problem, row.place) for row in rows
    }


def keep_reads(inventory: SqlInventory, ark: str, files: Sequence[ReadBackFile]) -> None:
    """Save the results of an unfinished check, so that the bytes are not read again after a crash."""

    def write(connection: Connection) -> None:
        own = {"inv_object_id": _id_of(connection, ark)}
        rows = (
            {**own, "place": f.place, "at": f.at, "size": f.size, "sha512": f.sha512, "problem": f.problem}
            for f in files
        )
        for portion in portions(rows, READS_PER_STATEMENT):
            connection.execute(insert(fixity_reads), portion)

    if files:
        inventory.database.write(write)


def complete(inventory: SqlInventory, check: FixityCheck, agent: str) -> bool:
    """Enter a complete check in one transaction; True if it changed the outcome, which enters an event."""

    def write(connection: Connection) -> bool:
        object_id = _id_of(connection, check.ark)
        row = {
            "profile": check.profile,
            "since": check.began,
            "checked": check.ended,
            "versions": check.versions,
            "files": check.files,
            "bytes": check.bytes,
            "damaged": len(check.damaged),
            **({} if check.damaged else {"proved": check.began}),
        }
        connection.execute(
            tables.insert(connection, fixities).on_conflict_do_update(
                index_elements=[fixities.c.inv_object_id], set_=row
            ),
            {"inv_object_id": object_id, "proved": None, **row},
        )
        connection.execute(fixity_reads.delete().where(fixity_reads.c.inv_object_id == object_id))
        event = _event(connection, object_id, check, agent)
        if event is not None:
            enter_event(connection, object_id, event)
        return event is not None

    return inventory.database.write(write)


def _event(
    connection: Connection, object_id: int, check: FixityCheck, agent: str
) -> PreservationEvent | None:
    """The event of this check; None if the previous check had the same outcome."""
    last = connection.execute(
        select(events.c.outcome, events.c.detail)
        .where(events.c.inv_object_id == object_id, events.c.type == FIXITY_CHECK)
        .order_by(events.c.id.desc())
        .limit(1)
    ).one_or_none()
    outcome, named = FAIL if check.damaged else PASS, check.damaged[:MAX_DETAIL]
    before = (last.outcome, tuple(DamagedFile(**file) for file in last.detail)) if last else (PASS, ())
    if (outcome, named) == before:
        return None
    return PreservationEvent(
        id=0,
        ark=check.ark,
        type=FIXITY_CHECK,
        at=check.ended,
        agent=agent,
        outcome=outcome,
        damaged=len(check.damaged),
        files=named,
        reported=None,
    )


def unreported(inventory: SqlInventory, limit: int) -> tuple[PreservationEvent, ...]:
    """Events whose notice has not been sent, oldest first."""
    query = _events().where(events.c.reported.is_(None)).order_by(events.c.id).limit(limit)
    return _read_events(inventory, query)


def mark_reported(inventory: SqlInventory, ids: Collection[int], at: datetime) -> None:
    inventory.database.run(update(events).where(events.c.id.in_(ids)).values(reported=at))


def damage(inventory: SqlInventory, limit: int) -> tuple[PreservationEvent, ...]:
    """The last event of every object whose last check found damage, oldest first; at most `limit`."""
    own = events.alias()
    latest = select(func.max(own.c.id)).where(
        own.c.inv_object_id == fixities.c.inv_object_id, own.c.type == FIXITY_CHECK, own.c.outcome == FAIL
    )
    query = (
        _events()
        .join(fixities, fixities.c.inv_object_id == objects.c.id)
        .where(_DAMAGED, events.c.id == latest.correlate(fixities).scalar_subquery())
        .order_by(events.c.id)
        .limit(limit)
    )
    return _read_events(inventory, query)


def _events() -> Select[Any]:
    return select(events, objects.c.ark).join(objects, objects.c.id == events.c.inv_object_id)


def _read_events(inventory: SqlInventory, query: Select[Any]) -> tuple[PreservationEvent, ...]:
    rows = inventory.database.read(lambda connection: connection.execute(query).all())
    return tuple(preservation_event(row, row.ark) for row in rows)


def _id_of(connection: Connection, ark: str) -> int:
    return int(connection.execute(select(objects.c.id).where(objects.c.ark == ark)).scalar_one())


WAITING = 50
"""Maximum objects with waiting proofs."""

OF_ONE = 5
"""Maximum objects with unfinished proofs of one principal."""


@dataclass(frozen=True)
class AskedProof:
    id: str
    ark: str
    version: int
    asked: datetime
    began: datetime | None
    ended: datetime | None
    bytes_read: int
    bytes_total: int
    ahead: int
    """Proofs that were requested before this one and have not begun."""
    message: str
    custody: str | None
    """The result as JSON."""


def ask_proof(
    inventory: SqlInventory,
    ark: str,
    version: int,
    by: str,
    facts: Mapping[str, Any],
    *,
    limited: bool = True,
) -> AskedProof:
    """The version's unfinished proof, or a new one with `facts`; error `too-many-proofs` if at a limit."""

    def write(connection: Connection) -> AskedProof:
        of_version = (objects.c.ark == ark, proofs.c.version == version, proofs.c.ended.is_(None))
        known = _first(connection, _query().where(*of_version))
        if known is not None:
            return known
        of_ark = select(objects.c.id).where(objects.c.ark == ark).scalar_subquery()
        if limited:
            _check_room(connection, by, proofs.c.inv_object_id != of_ark)
        new = {"inv_object_id": of_ark, "version": version, "asked_by": by, "bytes_read": 0, **facts}
        connection.execute(insert(proofs).values(new))
        asked = _first(connection, _query().where(proofs.c.id == facts["id"]))
        assert asked is not None
        return asked

    return inventory.database.write(write)


def _check_room(connection: Connection, by: str, of_others: ColumnElement[bool]) -> None:
    # one reading answers all proofs of an object
    unended = select(func.count(proofs.c.inv_object_id.distinct())).where(proofs.c.ended.is_(None), of_others)
    waiting = connection.scalar(unended.where(proofs.c.began.is_(None))) or 0
    if waiting >= WAITING:
        raise ArklineError(
            f"{waiting} objects wait for their proofs already: ask again when some have ended",
            code=codes.TOO_MANY_PROOFS,
        )
    own = connection.scalar(unended.where(proofs.c.asked_by == by)) or 0
    if own >= OF_ONE:
        raise ArklineError(
            f"the proofs of {own} objects that you asked for have not ended: ask again when some have",
            code=codes.TOO_MANY_PROOFS,
        )


def find_proof(inventory: SqlInventory, proof_id: str) -> AskedProof | None:
    return _read(inventory, _query().where(proofs.c.id == proof_id))


def latest_proof(inventory: SqlInventory, ark: str, version: int) -> AskedProof | None:
    own = _query().where(objects.c.ark == ark, proofs.c.version == version)
    return _read(inventory, own.order_by(proofs.c.asked.desc()))


def next_asked_proofs(inventory: SqlInventory) -> tuple[AskedProof, ...]:
    """The oldest unfinished proof, then the other unfinished ones of its object: one reading answers all."""
    order, unended = (proofs.c.asked, proofs.c.id), proofs.c.ended.is_(None)
    oldest = select(proofs.c.inv_object_id).where(unended).order_by(*order).limit(1).scalar_subquery()
    of_object = _query().where(unended, proofs.c.inv_object_id == oldest).order_by(*order).limit(None)
    return inventory.database.read(
        lambda connection: tuple(map(_asked, connection.execute(of_object).mappings()))
    )


def begin_proof(inventory: SqlInventory, proof: AskedProof, at: datetime) -> None:
    if proof.began is None:
        _change(inventory, proof, {"began": at})


def count_proof_bytes(inventory: SqlInventory, proof: AskedProof, read: int) -> None:
    _change(inventory, proof, {"bytes_read": min(read, proof.bytes_total)})


def end_proof(inventory: SqlInventory, proof: AskedProof, at: datetime, facts: Mapping[str, Any]) -> None:
    """Enter the result; earlier results for the version are deleted."""

    def write(connection: Connection) -> None:
        row = connection.execute(select(proofs.c.inv_object_id).where(proofs.c.id == proof.id)).scalar_one()
        connection.execute(
            delete(proofs).where(
                proofs.c.inv_object_id == row, proofs.c.version == proof.version, proofs.c.ended.is_not(None)
            )
        )
        connection.execute(update(proofs).where(proofs.c.id == proof.id).values(ended=at, **facts))

    inventory.database.write(write)


def _change(inventory: SqlInventory, proof: AskedProof, values: Mapping[str, Any]) -> None:
    unended = update(proofs).where(proofs.c.id == proof.id, proofs.c.ended.is_(None))
    inventory.database.run(unended.values(**values))


def _query() -> Select[Any]:
    before = proofs.alias()
    ahead = select(func.count()).where(
        before.c.ended.is_(None),
        before.c.began.is_(None),
        before.c.asked < proofs.c.asked,
        proofs.c.ended.is_(None),
        proofs.c.began.is_(None),
    )
    return (
        select(proofs, objects.c.ark, ahead.scalar_subquery().label("ahead"))
        .join(objects, objects.c.id == proofs.c.inv_object_id)
        .limit(1)
    )


def _read(inventory: SqlInventory, query: Select[Any]) -> AskedProof | None:
    return inventory.database.read(lambda connection: _first(connection, query))


def _first(connection: Connection, query: Select[Any]) -> AskedProof | None:
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _asked(row)


def _asked(row: RowMapping) -> AskedProof:
    return AskedProof(**{field.name: row[field.name] for field in fields(AskedProof)})
