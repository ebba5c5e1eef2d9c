"""The rows of the board: an SQLite database in memory, for one writer and many readers."""

import json
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from weakref import finalize

from pydantic import TypeAdapter

from operations.board.values import Change
from pipeline.causes import FailureCause, describe
from pipeline.checks import CheckedFiles
from pipeline.fixity import LARGEST_FILE
from pipeline.states import JOB, Bucket, FailureKind, JobState
from zkstate.feed import BatchRead, BucketChange, JobDetail, QueueChange

CHECKED = TypeAdapter(tuple[CheckedFiles, ...])

_STATE_OF_BUCKET = {JOB.facts[state].bucket: state for state in JOB.where(lambda facts: facts.ended)}
"""Bucket -> state of a job that has left the queue: a completed job leaves it at clean-up."""

_CASES = " ".join(f"WHEN '{bucket}' THEN '{state}'" for bucket, state in _STATE_OF_BUCKET.items())

_SCHEMA = f"""
CREATE TABLE job (
    jid TEXT PRIMARY KEY, bid TEXT NOT NULL, collection TEXT, owner TEXT,
    queue TEXT, bucket TEXT, state TEXT AS (COALESCE(queue, CASE bucket {_CASES} END)) STORED,
    previous TEXT, priority INTEGER NOT NULL, since REAL NOT NULL,
    name TEXT NOT NULL DEFAULT '', ark TEXT NOT NULL DEFAULT '', kind TEXT, cause TEXT, recorded TEXT,
    message TEXT NOT NULL DEFAULT '', waiting TEXT NOT NULL DEFAULT '',
    bytes INTEGER, details INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE listed (
    jid TEXT PRIMARY KEY, bid TEXT NOT NULL DEFAULT '', queue TEXT, priority INTEGER NOT NULL DEFAULT 0,
    bucket TEXT
) WITHOUT ROWID;
CREATE TABLE batch (
    bid TEXT PRIMARY KEY, collection TEXT, owner TEXT NOT NULL, name TEXT NOT NULL, submitter TEXT NOT NULL,
    status TEXT, since REAL NOT NULL, submitted REAL NOT NULL, total INTEGER, kind TEXT, cause TEXT,
    recorded TEXT, message TEXT NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL,
    checked TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE hold (collection TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;
"""
"""`listed`: the jobs in the folders of the record during a comparison. The pause is the hold of ''."""

_INDEXES = (
    "job_counts ON job (collection, owner, state, bytes)",
    "job_state ON job (state, priority, jid)",
    "job_batch ON job (bid, state)",
    "job_cause ON job (cause) WHERE cause IS NOT NULL",
    "job_oldest ON job (state, since)",
    "job_unread ON job (state, since) WHERE details = 0",
    "batch_status ON batch (status, since)",
)
"""Created after the first fill: filling a table without indexes is faster."""

_PUT_PLACE = """
INSERT INTO job (jid, bid, collection, owner, queue, bucket, priority, previous, since)
SELECT :jid, :bid, batch.collection, batch.owner, :queue, :bucket, :priority, :previous, :since
FROM (SELECT 1) LEFT JOIN batch ON batch.bid = :bid WHERE true
ON CONFLICT (jid) DO UPDATE SET bid = excluded.bid, collection = excluded.collection, owner = excluded.owner,
    queue = excluded.queue, bucket = excluded.bucket, priority = excluded.priority
"""

_ENTER_STATE = f"""{_PUT_PLACE},
    previous = excluded.previous, since = excluded.since, kind = NULL, cause = NULL, recorded = NULL,
    message = '', waiting = '', details = 0
"""

_LIST_BUCKET = """
INSERT INTO listed (jid, bid, bucket) SELECT value, ?, ? FROM json_each(?) WHERE true ORDER BY value
ON CONFLICT (jid) DO UPDATE SET bid = excluded.bid, bucket = excluded.bucket
"""
_LIST_QUEUE = """
INSERT INTO listed (jid, queue, priority) SELECT value, ?, ? FROM json_each(?) WHERE true ORDER BY value
ON CONFLICT (jid) DO UPDATE SET queue = excluded.queue, priority = excluded.priority
"""
"""Rows in key order, so that SQLite appends instead of searching; `WHERE true` lets it parse ON CONFLICT.

A listing is passed as one text that SQLite splits into rows, so that the process's other threads can run
meanwhile.
"""

_FILL = """
INSERT INTO job (jid, bid, collection, owner, queue, bucket, priority, since)
SELECT jid, listed.bid, collection, owner, queue, bucket, priority, COALESCE(since, 0)
FROM listed LEFT JOIN batch ON batch.bid = listed.bid ORDER BY jid
"""

_DIFFERING = """
SELECT jid FROM job LEFT JOIN listed USING (jid)
WHERE listed.jid IS NULL OR job.queue IS NOT listed.queue OR job.bucket IS NOT listed.bucket
    OR (listed.queue IS NOT NULL AND job.priority != listed.priority)
    OR (listed.bucket IS NOT NULL AND job.bid != listed.bid)
UNION ALL SELECT jid FROM listed LEFT JOIN job USING (jid) WHERE job.jid IS NULL
"""

READ_AT_ONCE = JOB.where(lambda facts: facts.task is None and facts.queued and not facts.recorded)
READ_LATER = tuple(state for state in JOB.working() if state is not JobState.PENDING)
"""States whose jobs are read: at most as many jobs as the fleet has places, and the failures."""


class Place(NamedTuple):
    """A job's entry in the queue and in its batch; None for a missing entry."""

    bid: str = ""
    queue: JobState | None = None
    priority: int = 0
    bucket: Bucket | None = None

    @property
    def state(self) -> JobState | None:
        """The job's state; None if it is not in the record, or if its entries contradict each other."""
        if self.queue is not None:
            return self.queue
        return None if self.bucket is None else _STATE_OF_BUCKET.get(self.bucket)

    @property
    def gone(self) -> bool:
        return self.queue is None and self.bucket is None

    def after(self, change: QueueChange | BucketChange) -> "Place":
        """The place after a change; removing an entry that is already gone is not an error."""
        if isinstance(change, QueueChange):
            if change.present:
                return self._replace(queue=change.state, priority=change.priority)
            left = (self.queue, self.priority) == (change.state, change.priority)
            return self._replace(queue=None) if left else self
        if change.present:
            return self._replace(bid=change.bid, bucket=change.bucket)
        left = (self.bid, self.bucket) == (change.bid, change.bucket)
        return self._replace(bucket=None) if left else self


@dataclass(frozen=True)
class BatchFacts:
    """The fields of a batch that lists show: a difference in them is a change."""

    bid: str
    collection: str
    owner: str
    status: str
    since: float
    total: int | None
    message: str
    files: int
    bytes: int
    checked: str
    """A list of CheckedFiles, as JSON."""


class Table:
    """Thread-safe: a read sees a flush completely or not at all."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sql = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._sql.row_factory = sqlite3.Row
        self._sql.executescript(_SCHEMA)
        finalize(self, self._sql.close)

    def close(self) -> None:
        with self._lock:
            self._sql.close()

    def read(self, statement: str, values: Mapping[str, object] | Sequence[object] = ()) -> list[sqlite3.Row]:
        with self._lock:
            return self._sql.execute(statement, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction of the writer; readers wait until it ends."""
        with self._lock:
            self._sql.execute("BEGIN")
            try:
                yield
            except BaseException:
                self._sql.execute("ROLLBACK")
                raise
            self._sql.execute("COMMIT")

    def _of(self, ids: Iterable[str], columns: str, kind: str = "job", key: str = "jid") -> list[sqlite3.Row]:
        statement = f"SELECT {columns} FROM {kind} WHERE {key} IN (SELECT value FROM json_each(?))"
        return self.read(statement, (json.dumps(list(ids)),))

    def places(self, jids: Iterable[str], kind: str = "job") -> dict[str, Place]:
        """The places of these jobs; a job without a row is left out."""
        return {row["jid"]: _place(row) for row in self._of(jids, "jid, bid, queue, priority, bucket", kind)}

    def write_jobs(self, placed: Mapping[str, tuple[Place, Place | None]], since: float) -> list[str]:
        """Insert or update the places, (new, old) by JID; returns the jobs whose state changed.

        Details that were read of a job in an earlier state are void.
        """
        entered: list[Mapping[str, object]] = []
        same: list[Mapping[str, object]] = []
        for jid, (place, old) in sorted(placed.items()):  # in key order: SQLite appends
            values = {
                "jid": jid,
                "bid": place.bid,
                "queue": place.queue,
                "bucket": place.bucket,
                "priority": place.priority,
                "previous": old and old.state,
                "since": since,
            }
            (same if old is not None and old.state is place.state else entered).append(values)
        self._sql.executemany(_ENTER_STATE, entered)
        self._sql.executemany(_PUT_PLACE, same)
        return [str(values["jid"]) for values in entered]

    def bucket_sizes(self) -> dict[tuple[str, str], int]:
        rows = self.read(
            "SELECT bid, bucket, count(*) AS jobs FROM job WHERE bucket IS NOT NULL GROUP BY 1, 2"
        )
        return {(row["bid"], row["bucket"]): row["jobs"] for row in rows}

    def begin_listing(self, unchanged: Iterable[tuple[str, str]]) -> None:
        """Start a new listing; the jobs in the `unchanged` buckets are copied from the board."""
        with self.writing():
            self._sql.execute("DELETE FROM listed")
            self._sql.execute(
                "INSERT INTO listed (jid, bid, bucket) SELECT jid, bid, bucket FROM job "
                "WHERE bid || bucket IN (SELECT value FROM json_each(?))",
                (json.dumps([bid + bucket for bid, bucket in unchanged]),),
            )

    def list_bucket(self, bid: str, bucket: Bucket, jids: Collection[str]) -> None:
        with self._lock:
            self._sql.execute(_LIST_BUCKET, (bid, bucket, json.dumps(jids)))

    def list_queue(self, state: JobState, priority: int, jids: Collection[str]) -> None:
        with self._lock:
            self._sql.execute(_LIST_QUEUE, (state, priority, json.dumps(jids)))

    def differing(self) -> set[str]:
        """The jobs whose place on the board differs from the listed one."""
        return {row["jid"] for row in self.read(_DIFFERING)}

    def fill(self) -> None:
        """Write all listed jobs, with the collection and owner of their batches on the board."""
        with self.writing():
            self._sql.execute("DELETE FROM job")  # left by a fill that lost ZooKeeper
            self._sql.execute(_FILL)
            for index in _INDEXES:
                self._sql.execute(f"CREATE INDEX IF NOT EXISTS {index}")

    def end_listing(self) -> None:
        with self.writing():
            self._sql.execute("DELETE FROM listed")

    def since(self, jids: Iterable[str]) -> dict[str, float]:
        """JID -> when the job entered its state, in seconds since the epoch."""
        return {row["jid"]: row["since"] for row in self._of(jids, "jid, since")}

    def submitted(self, bids: Iterable[str]) -> dict[str, float]:
        """BID -> when the batch was submitted, in seconds since the epoch."""
        return {row["bid"]: row["submitted"] for row in self._of(bids, "bid, submitted", "batch", "bid")}

    def jobs_as_changes(self, jids: Iterable[str]) -> list[Change]:
        """The jobs' current values as changes, for subscribers; jobs of an unknown batch are omitted."""
        return [
            Change(
                id="",
                kind="job",
                subject=row["jid"],
                bid=row["bid"],
                collection=row["collection"],
                owner=row["owner"] or "",
                state=row["state"] or "",
                previous=row["previous"] or "",
            )
            for row in self._of(jids, "jid, bid, collection, owner, state, previous")
            if row["collection"] is not None
        ]

    def remove_jobs(self, jids: Iterable[str]) -> None:
        self._sql.executemany("DELETE FROM job WHERE jid = ?", [(jid,) for jid in jids])

    def unread(self, limit: int, at_once: int, settled: float) -> list[str]:
        """At most `limit` jobs to read: failed, held, unknown, or working since before `settled`."""
        jids: list[str] = []
        ended = f"details = 0 AND state IN ({_quoted(READ_AT_ONCE)})"
        working = f"details = 0 AND state IN ({_quoted(READ_LATER)})"
        for where, values, most in (
            (ended, (), limit),
            (f"{working} AND since < ?", (settled,), limit),
            (f"{working} AND (name = '' OR ark = '' AND state = '{JobState.NOTIFY}')", (), at_once),
        ):
            jids += [
                row["jid"] for row in self.read(f"SELECT jid FROM job WHERE {where} LIMIT {most}", values)
            ]
        return list(dict.fromkeys(jids))[:limit]

    def read_again(self, jids: Iterable[str]) -> None:
        """Mark these jobs as unread: their details may have changed although they did not move."""
        self._sql.executemany("UPDATE job SET details = 0 WHERE jid = ?", [(jid,) for jid in jids])

    def write_details(self, requested: Iterable[str], details: Iterable[JobDetail]) -> None:
        """Store the details read of the requested jobs; a job that has moved since is left as it is."""
        self._sql.executemany("UPDATE job SET details = 1 WHERE jid = ?", [(jid,) for jid in requested])
        self._sql.executemany(
            "UPDATE job SET name = :name, ark = :ark, since = :since, kind = :kind, cause = :cause, "
            "recorded = :recorded, message = :message, waiting = :waits_for, bytes = :bytes "
            "WHERE jid = :jid AND state = :state",
            [
                vars(detail)
                | {"since": detail.since.timestamp(), "bytes": _size(detail.bytes)}
                | _failure(
                    detail.kind if detail.state is JobState.FAILED else None, detail.cause, detail.message
                )
                for detail in details
            ],
        )

    def write_batches(self, batches: Iterable[BatchRead]) -> None:
        """Insert or update the batches, and set the collection and the owner of their jobs."""
        values = [_of_batch(batch) for batch in batches]
        self._sql.executemany(
            "INSERT OR REPLACE INTO batch VALUES (:bid, :collection, :owner, :name, :submitter, :status, "
            ":since, :submitted, :total, :kind, :cause, :recorded, :message, :files, :bytes, :checked)",
            values,
        )
        self._sql.executemany(
            "UPDATE job SET collection = :collection, owner = :owner WHERE bid = :bid AND collection IS NULL",
            values,
        )

    def remove_batches(self, bids: Iterable[str]) -> None:
        self._sql.executemany("DELETE FROM batch WHERE bid = ?", [(bid,) for bid in bids])

    def batch_facts(self, bids: Iterable[str]) -> dict[str, BatchFacts]:
        columns = (
            "bid, COALESCE(collection, '') AS collection, owner, COALESCE(status, '') AS status, since, "
            "total, message, files, bytes, checked"
        )
        return {row["bid"]: BatchFacts(**row) for row in self._of(bids, columns, "batch", "bid")}

    def batch_statuses(self) -> dict[str, str]:
        return {row["bid"]: row["status"] or "" for row in self.read("SELECT bid, status FROM batch")}

    def write_holds(self, holds: Mapping[str, str]) -> bool:
        """Replace the holds by collection name; returns False if nothing changed."""
        if holds == {row["collection"]: row["content"] for row in self.read("SELECT * FROM hold")}:
            return False
        self._sql.execute("DELETE FROM hold")
        self._sql.executemany("INSERT INTO hold VALUES (?, ?)", holds.items())
        return True


def _place(row: sqlite3.Row) -> Place:
    return Place(
        bid=row["bid"],
        queue=JobState(row["queue"]) if row["queue"] else None,
        priority=row["priority"],
        bucket=Bucket(row["bucket"]) if row["bucket"] else None,
    )


def _of_batch(batch: BatchRead) -> dict[str, object]:
    submission, status = batch.submission, batch.status
    submitted = submission.submitted_at if submission else None
    deposited = status.deposited if status else None
    since = status.last_modified if status else submitted
    return {
        "bid": batch.bid,
        "collection": submission.profile_name if submission else None,
        "owner": submission.owner if submission else "",
        "name": submission.name if submission else "",
        "submitter": submission.submitter if submission else "",
        "status": status.status if status else None,
        "since": _seconds(since),
        "submitted": _seconds(submitted or since),
        "total": status.total if status else None,
        "message": status.message if status else "",
        "files": deposited.files if deposited else 0,
        "bytes": deposited.bytes if deposited else 0,
        "checked": CHECKED.dump_json((status and status.checked) or ()).decode(),
        **(_failure(status.kind, status.failure_cause, status.message) if status else _NO_FAILURE),
    }


def _size(declared: int | None) -> int | None:
    """None for a size that no file can have: earlier releases accepted any, and SQLite has 64 bits."""
    return declared if declared is not None and declared <= LARGEST_FILE else None


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0


_NO_FAILURE: dict[str, object] = {"kind": None, "cause": None, "recorded": None}


def _failure(kind: FailureKind | None, cause: FailureCause | None, message: str) -> dict[str, object]:
    """`recorded`: the cause as JSON, null if it was not recorded."""
    if kind is None:
        return _NO_FAILURE
    recorded = cause.model_dump_json() if cause else None
    return {"kind": kind, "cause": describe(cause, kind, message).id, "recorded": recorded}


def _quoted(states: Iterable[JobState]) -> str:
    return ", ".join(f"'{state}'" for state in states)
