"""Fills an empty board with the places of all jobs.

A listing goes to SQLite as one text: SQLite makes the rows, and other threads of the process run meanwhile.
The rows are those that a comparison with an empty board would write.
"""

import json

from operations.board.place import Place
from operations.board.table import Table
from operations.board.tree import Marks
from pipeline.states import Bucket, JobState
from zkstate.feed import tree
from zkstate.session import Session

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
