"""The rows of the board: an SQLite database in memory, for one writer and many readers."""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter

from operations.board import rows
from operations.board.place import Place
from operations.board.rows import JobWrite
from operations.board.values import Change
from pipeline.states import JOB, Bucket, JobState
from zkstate.feed.tree import BatchRead, JobDetail

_SCHEMA = """
CREATE TABLE job (
    jid TEXT PRIMARY KEY, bid TEXT NOT NULL, collection TEXT, owner TEXT,
    queue TEXT, bucket TEXT, state TEXT, previous TEXT, priority INTEGER NOT NULL, since REAL NOT NULL,
    name TEXT NOT NULL DEFAULT '', ark TEXT NOT NULL DEFAULT '', kind TEXT, cause TEXT, template TEXT,
    host TEXT, message TEXT NOT NULL DEFAULT '', waiting TEXT NOT NULL DEFAULT '',
    bytes INTEGER, details INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE batch (
    bid TEXT PRIMARY KEY, collection TEXT, owner TEXT NOT NULL, name TEXT NOT NULL, submitter TEXT NOT NULL,
    status TEXT, since REAL NOT NULL, submitted REAL NOT NULL, total INTEGER, kind TEXT, cause TEXT,
    template TEXT, host TEXT, message TEXT NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE hold (collection TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;
"""
"""`state`: of the queue, or of the bucket of a job that has left the queue. The pause is the hold of ''."""

_INDEXES = (
    "job_counts ON job (collection, owner, state, bytes)",
    "job_state ON job (state, priority, jid)",
    "job_batch ON job (bid, state)",
    "job_cause ON job (cause) WHERE cause IS NOT NULL",
    "job_oldest ON job (state, since)",
    "job_unread ON job (state, since) WHERE details = 0",
    "batch_status ON batch (status, since)",
)
"""Created after the first fill: to fill a table without indexes is faster."""

_PUT_PLACE = """
INSERT INTO job (jid, bid, collection, owner, queue, bucket, state, priority, previous, since)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (jid) DO UPDATE SET bid = excluded.bid, collection = excluded.collection, owner = excluded.owner,
    queue = excluded.queue, bucket = excluded.bucket, state = excluded.state, priority = excluded.priority
"""

_ENTER_STATE = f"""{_PUT_PLACE},
    previous = excluded.previous, since = excluded.since, kind = NULL, cause = NULL, template = NULL,
    host = NULL, message = '', waiting = '', details = 0
"""

READ_AT_ONCE = (JobState.FAILED, JobState.HELD)
READ_LATER = tuple(state for state in JOB.working() if state is not JobState.PENDING)
"""The states whose jobs are read: at most the places of the fleet, and the failures."""


@dataclass(frozen=True)
class BatchFacts:
    """What a list of batches shows of the record: a difference is a change."""

    bid: str
    collection: str
    owner: str
    status: str
    since: float
    total: int | None
    message: str
    files: int
    bytes: int


class Table:
    """Thread-safe: a read sees all of a flush, or nothing of it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sql = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._sql.row_factory = sqlite3.Row
        self._sql.executescript(_SCHEMA)

    def add_indexes(self) -> None:
        with self._lock:
            for index in _INDEXES:
                self._sql.execute(f"CREATE INDEX IF NOT EXISTS {index}")

    def close(self) -> None:
        with self._lock:
            self._sql.close()

    def read(self, statement: str, values: Mapping[str, object] | Sequence[object] = ()) -> list[sqlite3.Row]:
        with self._lock:
            return self._sql.execute(statement, values).fetchall()

    def execute(self, statement: str, values: Mapping[str, object] | Sequence[object] = ()) -> None:
        """A statement of the writer, within `writing`."""
        self._sql.execute(statement, values)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction of the writer; readers wait until its end."""
        with self._lock:
            self._sql.execute("BEGIN")
            try:
                yield
            except BaseException:
                self._sql.execute("ROLLBACK")
                raise
            self._sql.execute("COMMIT")

    def places(self, jids: Iterable[str] | None = None) -> dict[str, Place]:
        """The places of these jobs, or of all; a job without a row is left out."""
        columns = "jid, bid, queue, priority, bucket"
        some = self.read(f"SELECT {columns} FROM job") if jids is None else self._of_jobs(columns, jids)
        return {row["jid"]: _place(row) for row in some}

    def write_jobs(self, jobs: Sequence[JobWrite]) -> None:
        """Insert or change the places; what was read of a job in an earlier state is forgotten."""
        batches = self._of_batches({job.place.bid for job in jobs})
        for statement, moved in ((_ENTER_STATE, True), (_PUT_PLACE, False)):
            written = [job for job in jobs if job.moved is moved]
            values = (rows.of_place(job, batches.get(job.place.bid, rows.UNKNOWN)) for job in written)
            # in the order of the key: SQLite appends instead of searching
            self._sql.executemany(statement, sorted(values, key=itemgetter(0)))

    def _of_batches(self, bids: Iterable[str]) -> dict[str, rows.OfBatch]:
        return {
            row["bid"]: rows.OfBatch(row["collection"], row["owner"])
            for part in _parts(sorted(bids))
            for row in self.read(
                f"SELECT bid, collection, owner FROM batch WHERE bid IN ({_marks(part)})", part
            )
        }

    def since(self, jids: Iterable[str]) -> dict[str, float]:
        """JID -> seconds since the epoch at which the job came to its state."""
        return {row["jid"]: row["since"] for row in self._of_jobs("jid, since", jids)}

    def submitted(self, bids: Iterable[str]) -> dict[str, float]:
        """BID -> seconds since the epoch at which the batch was submitted."""
        return {
            row["bid"]: row["submitted"]
            for part in _parts(sorted(bids))
            for row in self.read(f"SELECT bid, submitted FROM batch WHERE bid IN ({_marks(part)})", part)
        }

    def jobs_as_changes(self, jids: Iterable[str]) -> list[Change]:
        """The jobs as they are now, for those who follow the board; jobs of an unknown batch are left out."""
        columns = "jid, bid, collection, owner, state, previous"
        return [rows.job_change(row) for row in self._of_jobs(columns, jids) if row["collection"] is not None]

    def _of_jobs(self, columns: str, jids: Iterable[str]) -> Iterator[sqlite3.Row]:
        for part in _parts(sorted(jids)):
            yield from self.read(f"SELECT {columns} FROM job WHERE jid IN ({_marks(part)})", part)

    def remove_jobs(self, jids: Iterable[str]) -> None:
        self._sql.executemany("DELETE FROM job WHERE jid = ?", [(jid,) for jid in jids])

    def unread(self, limit: int, at_once: int, settled: float) -> list[str]:
        """At most `limit` jobs to be read: failed and held, working since before `settled`, unknown ones.

        A job that moves on quickly is read twice in its life: for its name, and at the end for its ARK.
        """
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
        """What was read of these jobs may have changed, although they did not move."""
        self._sql.executemany("UPDATE job SET details = 0 WHERE jid = ?", [(jid,) for jid in jids])

    def write_details(self, requested: Iterable[str], details: Iterable[JobDetail]) -> None:
        """What was read of the requested jobs; a job that has moved meanwhile is left as it is."""
        self._sql.executemany("UPDATE job SET details = 1 WHERE jid = ?", [(jid,) for jid in requested])
        self._sql.executemany(
            "UPDATE job SET name = :name, ark = :ark, since = :since, kind = :kind, cause = :cause, "
            "template = :template, host = :host, message = :message, waiting = :waiting, "
            "bytes = :bytes "
            "WHERE jid = :jid AND state = :state",
            [rows.of_detail(detail) for detail in details],
        )

    def write_batches(self, batches: Iterable[BatchRead]) -> None:
        """Insert or change the batches, and give their jobs the collection and the owner."""
        values = [rows.of_batch(batch) for batch in batches]
        self._sql.executemany(
            "INSERT OR REPLACE INTO batch VALUES (:bid, :collection, :owner, :name, :submitter, :status, "
            ":since, :submitted, :total, :kind, :cause, :template, :host, :message, :files, :bytes)",
            values,
        )
        self._sql.executemany(
            "UPDATE job SET collection = :collection, owner = :owner WHERE bid = :bid AND collection IS NULL",
            values,
        )

    def remove_batches(self, bids: Iterable[str]) -> None:
        self._sql.executemany("DELETE FROM batch WHERE bid = ?", [(bid,) for bid in bids])

    def batch_facts(self, bids: Iterable[str]) -> dict[str, BatchFacts]:
        return {
            row["bid"]: BatchFacts(**row)
            for part in _parts(sorted(bids))
            for row in self.read(
                "SELECT bid, COALESCE(collection, '') AS collection, owner, COALESCE(status, '') AS status, "
                f"since, total, message, files, bytes FROM batch WHERE bid IN ({_marks(part)})",
                part,
            )
        }

    def batch_statuses(self) -> dict[str, str]:
        return {row["bid"]: row["status"] or "" for row in self.read("SELECT bid, status FROM batch")}

    def write_holds(self, holds: Mapping[str, str]) -> bool:
        """Replace the holds by collection name; False if nothing changed."""
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


def _parts(values: Sequence[str], size: int = 500) -> Iterator[Sequence[str]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _quoted(states: Iterable[JobState]) -> str:
    return ", ".join(f"'{state}'" for state in states)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
