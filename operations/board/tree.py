"""The record compared with the board: the places of all jobs from listings, and the batches.

Fills an empty board with the places of all jobs.

A listing goes to SQLite as one text: SQLite makes the rows, and other threads of the process run meanwhile.
The rows are those that a comparison with an empty board would write.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from operations.board.place import Place, moved
from operations.board.table import Table
from pipeline.states import Bucket, JobState
from zkstate.connection.session import Session
from zkstate.feed import tree
from zkstate.feed.tree import BucketMark
from zkstate.feed.watch import BucketChange, QueueChange

_NOWHERE = Place()

Marks = dict[tuple[str, Bucket], BucketMark]
"""How each bucket was at its last listing."""

Between = Callable[[], None]
"""Called between two listings, so that changes are applied while a large record is listed."""


@dataclass
class Listings:
    """Remembers how each bucket was at its last listing, to skip those that have not changed."""

    marks: Marks = field(default_factory=dict)

    def mark(self, session: Session, bids: Iterable[str]) -> Marks:
        """Remember how each bucket of these batches is now."""
        self.marks = {(bid, bucket): mark for bid, bucket, mark in tree.bucket_marks(session, sorted(bids))}
        return self.marks

    def places(
        self, session: Session, bids: Iterable[str], known: dict[str, Place], between: Between
    ) -> dict[str, Place]:
        """JID -> place, of every job in the record; `known`: the places on the board."""
        changed, gone = self._changed(session, bids, known)
        between()
        places = {
            jid: place._replace(queue=None)
            for jid, place in known.items()
            if place.bucket is not None and (place.bid, place.bucket) not in gone
        }
        for _, _, entries in tree.bucket_entries(session, changed):
            _add(places, entries)
            between()
        # states in the order of the work: a job that moves during the listings is listed twice, not never
        for state in tree.queues():
            _add(places, tree.queue_entries(session, state))
            between()
        return places

    def _changed(
        self, session: Session, bids: Iterable[str], known: dict[str, Place]
    ) -> tuple[list[tuple[str, Bucket]], set[tuple[str, Bucket]]]:
        """The buckets to list, and those of the board whose jobs do not count any more."""
        on_board: dict[tuple[str, Bucket], int] = {}
        for place in known.values():
            if place.bucket is not None:
                key = place.bid, place.bucket
                on_board[key] = on_board.get(key, 0) + 1
        before, marks = self.marks, self.mark(session, bids)
        changed = [
            key for key, mark in marks.items() if before.get(key) != mark or on_board.get(key, 0) != mark.jobs
        ]
        return [key for key in changed if marks[key].jobs], {*changed, *(on_board.keys() - marks.keys())}


def _add(places: dict[str, Place], entries: Iterable[QueueChange | BucketChange]) -> None:
    for entry in entries:
        places[entry.jid] = moved(places.get(entry.jid, _NOWHERE), entry)


_IN_BUCKET = """
INSERT INTO job (jid, bid, collection, owner, bucket, state, priority, since)
SELECT listed.value, :bid, batch.collection, batch.owner, :bucket, :state, 0, COALESCE(batch.since, 0)
FROM json_each(:jids) AS listed LEFT JOIN batch ON batch.bid = :bid
WHERE true ORDER BY listed.value
ON CONFLICT (jid) DO UPDATE SET bid = excluded.bid, collection = excluded.collection, owner = excluded.owner,
    bucket = excluded.bucket, state = excluded.state, since = excluded.since
"""

_IN_QUEUE = """
INSERT INTO job (jid, bid, queue, state, priority, since)
SELECT value, '', :state, :state, :priority, 0 FROM json_each(:jids) WHERE true ORDER BY value
ON CONFLICT (jid) DO UPDATE SET queue = excluded.queue, state = excluded.state, priority = excluded.priority
"""
"""In the order of the key: SQLite appends instead of searching. `WHERE true` lets it parse ON CONFLICT."""


def fill(session: Session, table: Table, marks: Marks) -> None:
    """Write the places of all jobs, with what their batches on the board say; `marks`: of all buckets."""
    buckets = list(tree.bucket_jids(session, [bucket for bucket, mark in marks.items() if mark.jobs]))
    # after the buckets, and in the order of the work: a job that moves meanwhile is listed twice, not never
    queues = [(state, tree.queued_jids(session, state)) for state in tree.queues()]
    with table.writing():
        table.execute("DELETE FROM job")  # of a fill that ZooKeeper's absence cut off
        for bid, bucket, jids in buckets:
            table.execute(_IN_BUCKET, _of_bucket(bid, bucket, jids))
        for state, by_priority in queues:
            for priority, jids in by_priority.items():
                table.execute(_IN_QUEUE, _of_queue(state, priority, jids))


def _of_bucket(bid: str, bucket: Bucket, jids: list[str]) -> dict[str, object]:
    state = Place(bid, bucket=bucket).state
    return {
        "bid": bid,
        "bucket": bucket.value,
        "state": state.value if state else None,
        "jids": json.dumps(jids),
    }


def _of_queue(state: JobState, priority: int, jids: list[str]) -> dict[str, object]:
    return {"state": state.value, "priority": priority, "jids": json.dumps(jids)}
