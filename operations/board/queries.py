"""Questions to the board's rows, as SQL: lists, counts, ages and groups, within the scope of the caller.

One collection of the board, limited to what the caller may see.

What operators stopped, and what each stop keeps back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from operations.board.rows import batch_of, job_of, moment_of
from operations.board.table import Table
from operations.board.usual import condition, marked
from operations.board.values import (
    OWNERS,
    BatchPage,
    BatchSearch,
    CollectionCounts,
    FailureGroup,
    JobPage,
    JobSearch,
    Scope,
    Stop,
    Stops,
)
from pipeline.errors import UsageRefused
from pipeline.names import NotAnArk, canonical_ark
from pipeline.records import now
from pipeline.states import JOB, BatchState, FailureKind, JobState
from zkstate.fleet.holds import Hold

_HELD = "(state = 'held' OR (state = 'pending' AND collection IN (SELECT collection FROM hold)))"
_HELD_BATCH = "(status = 'held' OR (status = 'pending' AND collection IN (SELECT collection FROM hold)))"
_BY_PRIORITY = frozenset(JOB.where(lambda facts: not facts.ended))
"""The states whose jobs are listed in the order of the queue; others newest first."""


@dataclass
class _Where:
    """Conditions with their values."""

    terms: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)

    def add(self, term: str, *values: object) -> None:
        self.terms.append(term)
        self.values += values

    def __str__(self) -> str:
        return " AND ".join(self.terms) or "true"


def _scoped(scope: Scope) -> _Where:
    where = _Where(["collection IS NOT NULL"])
    if scope.collections is not None:
        where.add(f"collection IN ({_marks(scope.collections)})", *sorted(scope.collections))
    if scope.owner is not None:
        where.add("owner = ?", scope.owner)
    return where


def sums(table: Table, sums: str, rows: str, scope: Scope, condition: str) -> dict[str, int]:
    """Sums over the rows of `job` or `batch` in the scope that meet the condition, by their names."""
    where = _scoped(scope)
    return dict(table.read(f"SELECT {sums} FROM {rows} WHERE {where} AND {condition}", where.values)[0])


def counts(table: Table, scope: Scope) -> dict[JobState, int]:
    where = _scoped(scope)
    rows = table.read(
        f"SELECT state, count(*) AS jobs FROM job WHERE {where} AND state IS NOT NULL GROUP BY state",
        where.values,
    )
    return {state: 0 for state in JobState} | {JobState(row["state"]): row["jobs"] for row in rows}


def oldest(table: Table, scope: Scope) -> dict[JobState, datetime]:
    where = _scoped(scope)
    rows = table.read(
        f"SELECT state, min(since) AS since FROM job WHERE {where} AND state IS NOT NULL GROUP BY state",
        where.values,
    )
    return {JobState(row["state"]): moment_of(row["since"]) for row in rows}


def oldest_batches(table: Table, scope: Scope) -> dict[BatchState, datetime]:
    where = _scoped(scope)
    rows = table.read(
        f"SELECT status, min(since) AS since FROM batch WHERE {where} AND status IS NOT NULL GROUP BY status",
        where.values,
    )
    return {BatchState(row["status"]): moment_of(row["since"]) for row in rows}


def slow(table: Table, scope: Scope, usual: Mapping[JobState, float]) -> dict[JobState, int]:
    """How many jobs are in their state for longer than is usual; without the states that have none."""
    where = _scoped(scope)
    term, values = condition(usual, now().timestamp())
    rows = table.read(
        f"SELECT state, count(*) AS jobs FROM job WHERE {where} AND {term} GROUP BY state",
        [*where.values, *values],
    )
    return {JobState(row["state"]): row["jobs"] for row in rows}


def jobs(
    table: Table,
    scope: Scope,
    search: JobSearch,
    limit: int,
    after: str | None,
    usual: Mapping[JobState, float],
) -> JobPage:
    where = _searched_jobs(scope, search)
    if search.slow:
        term, values = condition(usual, now().timestamp())
        where.add(term, *values)
    total = table.read(f"SELECT count(*) AS jobs FROM job WHERE {where}", where.values)[0]["jobs"]
    by_priority = search.state in _BY_PRIORITY and search.bid is None
    ascending = by_priority or search.bid is not None
    if after is not None:
        priority, jid = _read_cursor(after, by_priority)
        if by_priority:
            where.add("(priority, jid) > (?, ?)", priority, jid)
        else:
            where.add("jid > ?" if ascending else "jid < ?", jid)
    order = "priority, jid" if by_priority else "jid" if ascending else "jid DESC"
    rows = table.read(
        f"SELECT *, {_HELD} AS held FROM job WHERE {where} ORDER BY {order} LIMIT ?",
        [*where.values, limit + 1],
    )
    page = rows[:limit]
    more = len(rows) > limit
    last = page[-1] if more else None
    cursor = last and (f"{last['priority']:02d}-{last['jid']}" if by_priority else last["jid"])
    return marked(JobPage(rows=tuple(job_of(row) for row in page), next=cursor, total=total), usual)


def batches(table: Table, scope: Scope, search: BatchSearch, limit: int, after: str | None) -> BatchPage:
    """Newest first."""
    where = _searched_batches(scope, search)
    total = table.read(f"SELECT count(*) AS batches FROM batch WHERE {where}", where.values)[0]["batches"]
    if after is not None:
        if not after.startswith("bid"):
            raise _no_cursor(after)
        where.add("bid < ?", after)
    rows = table.read(
        f"SELECT *, {_HELD_BATCH} AS held FROM batch WHERE {where} ORDER BY bid DESC LIMIT ?",
        [*where.values, limit + 1],
    )
    page = rows[:limit]
    states = _states_of(table, [row["bid"] for row in page])
    return BatchPage(
        rows=tuple(batch_of(row, states.get(row["bid"], {})) for row in page),
        next=page[-1]["bid"] if len(rows) > limit else None,
        total=total,
    )


CAUSES = 500
"""Causes of failures in one answer: a deposit may fail by as many hosts as it names."""


def failures(table: Table, scope: Scope, cause: str | None = None) -> tuple[FailureGroup, ...]:
    """The CAUSES most frequent causes, the most frequent first, or the one with this id."""
    where = _scoped(scope)
    if cause is not None:
        where.add("cause = ?", cause)
    columns = "cause, kind, template, host, collection, since, message"
    rows = table.read(
        "SELECT cause, kind, template, host, sum(job) AS jobs, sum(1 - job) AS batches, min(since) AS first, "
        "max(since) AS last, group_concat(DISTINCT collection) AS collections, "
        "min(id) FILTER (WHERE job) AS jid, min(id) AS id, message FROM ("
        f"SELECT 1 AS job, jid AS id, {columns} FROM job WHERE {where} AND cause IS NOT NULL UNION ALL "
        f"SELECT 0 AS job, bid AS id, {columns} FROM batch WHERE {where} AND cause IS NOT NULL"
        ") GROUP BY cause ORDER BY jobs DESC, last DESC LIMIT ?",
        [*where.values, *where.values, CAUSES],
    )
    return tuple(
        FailureGroup(
            id=row["cause"],
            kind=FailureKind(row["kind"]),
            owner=OWNERS[FailureKind(row["kind"])],
            template=row["template"],
            host=row["host"],
            count=row["jobs"],
            batches=row["batches"],
            first=moment_of(row["first"]),
            last=moment_of(row["last"]),
            collections=tuple(sorted(row["collections"].split(","))),
            example=row["jid"] or row["id"],
            message=row["message"],
        )
        for row in rows
    )


def collections(table: Table, scope: Scope) -> tuple[CollectionCounts, ...]:
    where = _scoped(scope)
    by_name: dict[str, dict[str, dict[str, int]]] = {}
    for kind, column in (("job", "state"), ("batch", "status")):
        rows = table.read(
            f"SELECT collection, {column} AS state, count(*) AS number FROM {kind} WHERE {where} "
            f"AND {column} IS NOT NULL GROUP BY collection, {column}",
            where.values,
        )
        for row in rows:
            by_name.setdefault(row["collection"], {"job": {}, "batch": {}})[kind][row["state"]] = row[
                "number"
            ]
    held = {row["collection"] for row in table.read("SELECT collection FROM hold")}
    return tuple(
        CollectionCounts(
            collection=name,
            jobs={JobState(state): number for state, number in numbers["job"].items()},
            batches={BatchState(state): number for state, number in numbers["batch"].items()},
            held=name in held,
        )
        for name, numbers in sorted(by_name.items())
    )


def _searched_jobs(scope: Scope, search: JobSearch) -> _Where:
    where = _scoped(scope)
    if search.state is None:
        where.add("state IS NOT NULL AND state != 'deleted'")
    for column in ("state", "bid", "collection", "kind", "cause", "waiting"):
        if (value := getattr(search, column)) is not None:
            where.add(f"{column} = ?", value)
    if search.older_than is not None:
        where.add("since <= ?", now().timestamp() - search.older_than)
    if search.q:
        _search_text(where, search.q.strip())
    return where


def _search_text(where: _Where, text: str) -> None:
    if text.startswith("jid"):
        where.add("jid >= ? AND jid < ?", text, f"{text}:")  # a colon follows the digits
    elif text.startswith("bid"):
        where.add("bid >= ? AND bid < ?", text, f"{text}:")
    elif text.lower().startswith("ark:"):
        where.add("ark LIKE ? ESCAPE '!'", f"{_literal(_ark(text))}%")
    else:
        where.add("name LIKE ? ESCAPE '!'", f"%{_literal(text)}%")


def _ark(text: str) -> str:
    try:
        return canonical_ark(text)
    except NotAnArk:
        return text  # the beginning of one


def _searched_batches(scope: Scope, search: BatchSearch) -> _Where:
    where = _scoped(scope)
    where.add("status IS NOT NULL")
    for column in ("status", "collection", "owner"):
        if (value := getattr(search, column)) is not None:
            where.add(f"{column} = ?", value)
    text = (search.q or "").strip()
    if text.startswith("bid"):
        where.add("bid >= ? AND bid < ?", text, f"{text}:")
    elif text:
        pattern = f"%{_literal(text)}%"
        where.add("(name LIKE ? ESCAPE '!' OR submitter LIKE ? ESCAPE '!')", pattern, pattern)
    return where


def _states_of(table: Table, bids: Iterable[str]) -> dict[str, dict[JobState, int]]:
    bids = list(bids)
    rows = table.read(
        f"SELECT bid, state, count(*) AS jobs FROM job WHERE bid IN ({_marks(bids)}) AND state IS NOT NULL "
        "GROUP BY bid, state",
        bids,
    )
    states: dict[str, dict[JobState, int]] = {}
    for row in rows:
        states.setdefault(row["bid"], {})[JobState(row["state"])] = row["jobs"]
    return states


def _read_cursor(after: str, by_priority: bool) -> tuple[int, str]:
    priority, dash, jid = after.partition("-") if by_priority else ("0", "-", after)
    if not dash or not priority.isdecimal() or not jid.startswith("jid"):
        raise _no_cursor(after)
    return int(priority), jid


def _no_cursor(after: str) -> UsageRefused:
    return UsageRefused(f"'{after}' is not a cursor of this list: take `next` of the page before")


def _literal(text: str) -> str:
    """The text for LIKE, where % and _ have a meaning."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _marks(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)


_JOBS = "state IN ('pending', 'held')"
_AMOUNT = "count(*) AS jobs, count(bytes) AS sized, COALESCE(sum(bytes), 0) AS bytes"
_BATCHES = "status IN ('pending', 'held')"


def stops(table: Table, scope: Scope) -> Stops:
    """The pause and the holds of the caller's collections, with the caller's jobs that they keep back."""
    pause = None
    collections = []
    for row in table.read("SELECT collection, content FROM hold ORDER BY collection"):
        name = row["collection"] or None
        hold = Hold.model_validate_json(row["content"])
        if name is None:
            pause = _stop(table, scope, hold, None)
        elif scope.collections is None or name in scope.collections:
            collections.append(_stop(table, scope, hold, name))
    return Stops(pause=pause, collections=tuple(collections))


def _stop(table: Table, scope: Scope, hold: Hold, collection: str | None) -> Stop:
    names = scope.collections if collection is None else frozenset({collection})
    kept_back = Scope(collections=names, owner=scope.owner)
    jobs = "state = 'pending'" if collection is None else _JOBS
    batches = "false" if collection is None else _BATCHES
    return Stop(
        collection=collection,
        by=hold.by,
        reason=hold.reason,
        at=hold.at,
        via=hold.via,
        **sums(table, _AMOUNT, "job", kept_back, jobs),
        **sums(table, "count(*) AS batches", "batch", kept_back, batches),
    )
