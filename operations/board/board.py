"""The board of one process: it follows the record in its own thread and answers queries from memory."""

import json
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from operations.board.follower import Follower
from operations.board.ring import Ring
from operations.board.table import Table
from operations.board.tally import Tallied, Tally
from operations.board.values import (
    EVERYTHING,
    BatchPage,
    BatchSearch,
    BoardBatch,
    BoardJob,
    Changes,
    CollectionCounts,
    FailureGroup,
    Freshness,
    JobPage,
    JobSearch,
    Scope,
    Stop,
    Stops,
    scope_of,
)
from operations.board.writer import Writer
from pipeline.causes import FailureCause, describe
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.humanize import counted
from pipeline.names import NotAnArk, canonical_ark
from pipeline.principal import Principal
from pipeline.profiles.profile import Profiles
from pipeline.records import now
from pipeline.states import JOB, BatchState, FailureKind, JobState
from zkstate.connection.session import Session
from zkstate.errors import Missing
from zkstate.fleet.holds import Hold

CAUSES = 500
"""Maximum number of failure causes in an answer: a deposit may name, and fail by, any number of hosts."""

PRIORITY_DIGITS = 2

_HELD = "({0} = 'held' OR ({0} = 'pending' AND collection IN (SELECT collection FROM hold))) AS held"
_BY_PRIORITY = frozenset(JOB.where(lambda facts: not facts.ended))
"""States whose jobs are listed in queue order; jobs in other states are listed newest first."""


@dataclass
class _Where:
    """SQL conditions with their values; those of the caller's scope come first."""

    scope: Scope
    terms: list[str] = field(default_factory=lambda: ["collection IS NOT NULL"])
    values: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.scope.collections is not None:
            names = json.dumps(sorted(self.scope.collections))
            self.add("collection IN (SELECT value FROM json_each(?))", names)
        if self.scope.owner is not None:
            self.add("owner = ?", self.scope.owner)

    def add(self, term: str, *values: object) -> None:
        self.terms.append(term)
        self.values += values

    def add_fields(self, search: JobSearch | BatchSearch, *columns: str) -> None:
        for column in columns:
            if (value := getattr(search, column)) is not None:
                self.add(f"{column} = ?", value)

    def add_slow(self, usual: Mapping[JobState, float]) -> None:
        """Select only the jobs that have been in their state for longer than usual."""
        moment = now().timestamp()
        self.add(
            f"({' OR '.join('(state = ? AND since < ?)' for _ in usual) or 'false'})",
            *(value for state, limit in usual.items() for value in (state, moment - limit)),
        )

    def __str__(self) -> str:
        return " AND ".join(self.terms)


class Board:
    """Thread-safe; no query reads ZooKeeper. Without ZooKeeper, queries return the last known data.

    Until the whole record has been read once, a query raises ServiceUnreachable: nothing is known yet.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._table = Table()
        self._ring = Ring()
        self._tally = Tally()
        self._follower = Follower(session, Writer(session, self._table, self._ring, self._tally))
        self._fill_timeout = 0.0
        self._starting = threading.Lock()

    @classmethod
    def on_demand(cls, session: Session, seconds: float) -> "Board":
        """A board that reads the record at the first query, which waits at most `seconds` for that."""
        board = cls(session)
        board._fill_timeout = seconds
        return board

    @classmethod
    def open(cls, session: Session) -> "Board":
        """A board that starts to follow the record of this session in the background; returns at once."""
        board = cls(session)
        board._follower.start()
        return board

    def wait_filled(self, seconds: float) -> bool:
        """True once the board has been filled from the record; False after `seconds`."""
        return self._follower.filled.wait(seconds)

    @property
    def known(self) -> bool:
        """False until the whole record has been read once."""
        return self._follower.filled.is_set()

    def _ask(self) -> None:
        """Start an on-demand board at the first query and wait until it is filled or its user is refused."""
        with self._starting:
            if self._fill_timeout and not self._follower.started:
                self._follower.start()
                self._follower.settled.wait(self._fill_timeout)

    def _read(self, statement: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        self._ask()
        if self.known:
            return self._table.read(statement, values)
        if not self._session.connected:
            raise self._session.unreachable()
        if self._follower.refused:
            raise self._session.refuses_user()
        raise ServiceUnreachable(
            f"the record in ZooKeeper at {self._session.hosts} is being read: repeat this soon"
        )

    def close(self) -> None:
        if self._follower.stop():
            self._table.close()

    def freshness(self) -> Freshness:
        self._ask()
        return self._follower.currency.read()

    def counts(self, scope: Scope) -> dict[JobState, int]:
        """Jobs by state; completed jobs count until their batch is removed from the record."""
        return {state: 0 for state in JobState} | self._jobs_by_state(_Where(scope))

    def _jobs_by_state(self, where: _Where) -> dict[JobState, int]:
        rows = self._read(
            f"SELECT state, count(*) AS jobs FROM job WHERE {where} AND state IS NOT NULL GROUP BY state",
            where.values,
        )
        return {JobState(row["state"]): row["jobs"] for row in rows}

    def oldest(self, scope: Scope) -> dict[JobState, datetime]:
        """By state: when the job that has been in the state longest entered it."""
        return {JobState(state): since for state, since in self._oldest(scope, "job", "state").items()}

    def oldest_batches(self, scope: Scope) -> dict[BatchState, datetime]:
        """By state: when the batch that has been in the state longest entered it."""
        return {BatchState(state): since for state, since in self._oldest(scope, "batch", "status").items()}

    def _oldest(self, scope: Scope, kind: str, column: str) -> dict[str, datetime]:
        where = _Where(scope)
        rows = self._read(
            f"SELECT {column} AS state, min(since) AS since FROM {kind} "
            f"WHERE {where} AND {column} IS NOT NULL GROUP BY {column}",
            where.values,
        )
        return {row["state"]: _moment(row["since"]) for row in rows}

    def jobs(self, scope: Scope, search: JobSearch, limit: int, after: str | None = None) -> JobPage:
        """Jobs of a batch in manifest order, active jobs of a state in queue order, others newest first.

        Deleted jobs are listed only if their state is requested.
        """
        freshness, where, usual = self.freshness(), _Where(scope), self._tally.usual()
        if search.state is None:
            where.add("state IS NOT NULL AND state != 'deleted'")
        where.add_fields(search, "state", "bid", "collection", "owner", "kind", "cause", "waiting")
        for seconds, compared in ((search.older_than, "<="), (search.younger_than, ">=")):
            if seconds is not None:
                where.add(f"since {compared} ?", now().timestamp() - seconds)
        if search.q:
            _search_text(where, search.q.strip())
        if search.slow:
            where.add_slow(usual)
        total = self._read(f"SELECT count(*) AS jobs FROM job WHERE {where}", where.values)[0]["jobs"]
        by_priority = search.state in _BY_PRIORITY and search.bid is None
        ascending = by_priority or search.bid is not None
        if after is not None:
            priority, jid = _read_cursor(after, by_priority)
            if by_priority:
                where.add("(priority, jid) > (?, ?)", priority, jid)
            else:
                where.add("jid > ?" if ascending else "jid < ?", jid)
        order = "priority, jid" if by_priority else "jid" if ascending else "jid DESC"
        rows = self._read(
            f"SELECT *, {_HELD.format('state')} FROM job WHERE {where} ORDER BY {order} LIMIT ?",
            [*where.values, limit + 1],
        )
        last = rows[limit - 1] if len(rows) > limit else None
        cursor = last and (f"{last['priority']:02d}-{last['jid']}" if by_priority else last["jid"])
        shown = tuple(_job(row, usual) for row in rows[:limit])
        return JobPage(rows=shown, next=cursor, total=total, freshness=freshness)

    def failed_by_hour(self, scope: Scope, start: datetime) -> dict[datetime, int] | None:
        """Beginning of an hour -> the failed jobs that failed in it, from `start`; hours without any are
        omitted.

        None while that is not known: the board is stale, or a failed job has not been read yet.
        """
        where = _Where(scope)
        where.add("state = 'failed'")
        unread = self._read(f"SELECT 1 FROM job WHERE {where} AND details = 0 LIMIT 1", where.values)
        if unread or self.freshness().stale:
            return None
        rows = self._read(
            f"SELECT CAST(since / 3600 AS INTEGER) AS hour, count(*) AS jobs FROM job "
            f"WHERE {where} AND since >= ? GROUP BY hour",
            [*where.values, start.timestamp()],
        )
        return {_moment(row["hour"] * 3600): row["jobs"] for row in rows}

    def stopped(self) -> frozenset[str]:
        """The collections on hold, and the empty name if the queue is paused."""
        return frozenset(row["collection"] for row in self._read("SELECT collection FROM hold"))

    def usual(self) -> dict[JobState, float]:
        """Seconds after which a job is slow in a state: 95 % of the jobs that left it recently took less.

        States that too few jobs have left since this board was opened are omitted.
        """
        return self._tally.usual()

    def slow(self, scope: Scope) -> dict[JobState, int]:
        """The number of slow jobs by state; states without any are omitted."""
        where = _Where(scope)
        where.add_slow(self._tally.usual())
        return self._jobs_by_state(where)

    def batches(self, scope: Scope, search: BatchSearch, limit: int, after: str | None = None) -> BatchPage:
        """Batches, newest first."""
        freshness, where = self.freshness(), _Where(scope)
        where.add("status IS NOT NULL")
        where.add_fields(search, "status", "collection", "owner")
        text = (search.q or "").strip()
        if text.startswith("bid"):
            where.add("bid >= ? AND bid < ?", text, f"{text}:")
        elif text:
            pattern = f"%{_literal(text)}%"
            where.add("(name LIKE ? ESCAPE '!' OR submitter LIKE ? ESCAPE '!')", pattern, pattern)
        total = self._read(f"SELECT count(*) AS batches FROM batch WHERE {where}", where.values)[0]["batches"]
        if after is not None:
            if not after.startswith("bid"):
                raise _no_cursor(after)
            where.add("bid < ?", after)
        rows = self._read(
            f"SELECT *, submitted AS submitted_at, {_HELD.format('status')} FROM batch WHERE {where} "
            "ORDER BY bid DESC LIMIT ?",
            [*where.values, limit + 1],
        )
        page = rows[:limit]
        states: dict[str, dict[JobState, int]] = {}
        for row in self._read(
            "SELECT bid, state, count(*) AS jobs FROM job WHERE bid IN (SELECT value FROM json_each(?)) "
            "AND state IS NOT NULL GROUP BY bid, state",
            (json.dumps([row["bid"] for row in page]),),
        ):
            states.setdefault(row["bid"], {})[JobState(row["state"])] = row["jobs"]
        return BatchPage(
            rows=tuple(
                BoardBatch.model_validate({**_values(row), "jobs": states.get(row["bid"], {})})
                for row in page
            ),
            next=page[-1]["bid"] if len(rows) > limit else None,
            total=total,
            freshness=freshness,
        )

    def failures(self, scope: Scope, cause: str | None = None) -> tuple[FailureGroup, ...]:
        """The CAUSES most frequent causes of failures, most frequent first, or the one with this id."""
        where = _Where(scope)
        where.add("cause IS NOT NULL")
        if cause is not None:
            where.add("cause = ?", cause)
        columns = "cause, kind, recorded, collection, since, message"
        rows = self._read(
            "SELECT cause AS id, kind, recorded, sum(job) AS count, sum(1 - job) AS batches, "
            "min(since) AS first, max(since) AS last, group_concat(DISTINCT collection) AS collections, "
            "COALESCE(min(name) FILTER (WHERE job), min(name)) AS example, message FROM ("
            f"SELECT 1 AS job, jid AS name, {columns} FROM job WHERE {where} UNION ALL "
            f"SELECT 0 AS job, bid AS name, {columns} FROM batch WHERE {where}"
            ") GROUP BY cause ORDER BY count DESC, last DESC LIMIT ?",
            [*where.values, *where.values, CAUSES],
        )
        return tuple(map(_group, rows))

    def collections(self, scope: Scope) -> tuple[CollectionCounts, ...]:
        where = _Where(scope)
        by_name: dict[str, dict[str, dict[str, int]]] = {}
        for kind, column in (("job", "state"), ("batch", "status")):
            rows = self._read(
                f"SELECT collection, {column} AS state, count(*) AS number FROM {kind} WHERE {where} "
                f"AND {column} IS NOT NULL GROUP BY collection, {column}",
                where.values,
            )
            for row in rows:
                counts = by_name.setdefault(row["collection"], {"job": {}, "batch": {}})
                counts[kind][row["state"]] = row["number"]
        held = {row["collection"] for row in self._read("SELECT collection FROM hold")}
        return tuple(
            CollectionCounts(
                collection=name,
                jobs={JobState(state): number for state, number in numbers["job"].items()},
                batches={BatchState(state): number for state, number in numbers["batch"].items()},
                held=name in held,
            )
            for name, numbers in sorted(by_name.items())
        )

    def stops(self, scope: Scope) -> Stops:
        """The pause and the holds of the caller's collections, with the caller's jobs that each holds
        back."""
        stops = {
            row["collection"]: self._stop(scope, row["collection"], Hold.model_validate_json(row["content"]))
            for row in self._read("SELECT collection, content FROM hold ORDER BY collection")
            if not row["collection"] or scope.collections is None or row["collection"] in scope.collections
        }
        return Stops(pause=stops.pop("", None), collections=tuple(stops.values()))

    def _stop(self, scope: Scope, collection: str, hold: Hold) -> Stop:
        where = _Where(scope)
        kept_back = "state = 'pending'"
        if collection:
            where.add("collection = ?", collection)
            kept_back = "state IN ('pending', 'held')"
        # total(), as sum() fails beyond 2^63, which a few declared sizes may reach
        (jobs,) = self._read(
            "SELECT count(*) AS jobs, count(bytes) AS sized, CAST(total(bytes) AS INTEGER) AS bytes FROM job "
            f"WHERE {where} AND {kept_back}",
            where.values,
        )
        (batches,) = self._read(
            f"SELECT count(*) AS batches FROM batch WHERE {where} AND status IN ('pending', 'held')",
            where.values,
        )
        number = batches["batches"] if collection else 0
        return Stop(**dict(hold), **dict(jobs), collection=collection or None, batches=number)

    def changes_since(self, event_id: str | None, scope: Scope = EVERYTHING) -> Changes:
        """The changes after this id; `reset` if some of them have been discarded."""
        self._ask()
        return self._ring.since(event_id, scope)

    def wait_change(self, event_id: str, seconds: float) -> bool:
        """True once there is a change after this id; False after `seconds`."""
        return self._ring.wait(event_id, seconds)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after every flush, in the board's thread: it must not block.

        Returns a function that unsubscribes. In asyncio: `board.subscribe(lambda:
        loop.call_soon_threadsafe(event.set))`.
        """
        return self._ring.subscribe(wake)

    def tally(self) -> Tallied:
        """What has moved since this board was opened."""
        return self._tally.read()


def collection_counts(board: Board, profiles: Profiles, principal: Principal, name: str) -> CollectionCounts:
    """The collection's row in the list, or an empty one; Missing unless the principal may see it."""
    scope = scope_of(principal)
    if scope.collections is None or name in scope.collections:
        narrowed = Scope(collections=frozenset({name}), owner=scope.owner)
        for counts in board.collections(narrowed):
            return counts
        if name in profiles.names():
            held = any(stop.collection == name for stop in board.stops(narrowed).collections)
            return CollectionCounts(collection=name, jobs={}, batches={}, held=held)
    raise Missing(f"there is no collection {name}")


def _search_text(where: _Where, text: str) -> None:
    if text.startswith(("jid", "bid")):
        key = text[:3]
        where.add(f"{key} >= ? AND {key} < ?", text, f"{text}:")  # a colon follows the digits
    elif text.lower().startswith("ark:"):
        where.add("ark LIKE ? ESCAPE '!'", f"{_literal(_ark(text))}%")
    else:
        where.add("name LIKE ? ESCAPE '!'", f"%{_literal(text)}%")


def _ark(text: str) -> str:
    try:
        return canonical_ark(text)
    except NotAnArk:
        return text  # the beginning of an ARK


def _read_cursor(after: str, by_priority: bool) -> tuple[int, str]:
    priority, dash, jid = after.partition("-") if by_priority else ("0", "-", after)
    if not dash or not priority.isdecimal() or len(priority) > PRIORITY_DIGITS or not jid.startswith("jid"):
        raise _no_cursor(after)
    return int(priority), jid


def _no_cursor(after: str) -> UsageRefused:
    return UsageRefused(f"'{after}' is not a cursor of this list: take `next` of the page before")


def _literal(text: str) -> str:
    """The text as a LIKE literal: % and _ are escaped."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _job(row: sqlite3.Row, usual: Mapping[JobState, float]) -> BoardJob:
    """The row as a job, with `usual` if the job is slow."""
    limit = usual.get(JobState(row["state"]))
    slow = limit is not None and now().timestamp() - row["since"] > limit
    return BoardJob.model_validate({**_values(row), "usual": limit if slow else None})


def _group(row: sqlite3.Row) -> FailureGroup:
    recorded = FailureCause.model_validate_json(row["recorded"]) if row["recorded"] else None
    described = describe(recorded, FailureKind(row["kind"]), row["message"])
    numbers = counted(row["count"], "object"), counted(row["batches"], "batch", "batches")
    failed = " and ".join(text for text in numbers if not text.startswith("0 "))
    return FailureGroup.model_validate(
        {
            **_values(row),
            **vars(described),
            "owner": "wait" if described.owner == "source" else described.owner,
            "to_act": described.owner,
            "title": f"{failed}: {described.title}",
            "template": described.title,
            "host": described.parameters.get("host", ""),
            "collections": sorted(row["collections"].split(",")),
        }
    )


def _values(row: sqlite3.Row) -> dict[str, object]:
    """The columns that are not null, converted to the types of the fields of the same names."""
    values = {name: row[name] for name in row.keys() if row[name] is not None}  # noqa: SIM118 - no mapping
    moments = {
        name: _moment(values[name]) for name in ("since", "submitted_at", "first", "last") if name in values
    }
    return values | moments


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
