"""Changes of the folders that are followed, read from a path alone: no znode is read for them.

One move of a job deletes its entry in one queue and creates one in another, and, where the job ends or is
resumed, deletes and creates its entry in a bucket of its batch; ZooKeeper reports them in this order.
"""

from dataclasses import dataclass

from pipeline.states import Bucket, JobState
from zkstate import paths


@dataclass(frozen=True, slots=True)
class QueueChange:
    """The job's entry in the queue of `state` was created, or with `present` False deleted."""

    jid: str
    state: JobState
    priority: int
    present: bool


@dataclass(frozen=True, slots=True)
class BucketChange:
    """The job's entry in a bucket of its batch was created or deleted."""

    jid: str
    bid: str
    bucket: Bucket
    present: bool


@dataclass(frozen=True, slots=True)
class BatchChange:
    """The batch was submitted, its status was written, or it was removed."""

    bid: str


@dataclass(frozen=True, slots=True)
class WaitingChange:
    """The job began to wait in a working state, or no longer waits."""

    jid: str


@dataclass(frozen=True, slots=True)
class StopsChange:
    """An operator paused the queue or put a collection on hold, or ended this."""


FeedChange = QueueChange | BucketChange | BatchChange | WaitingChange | StopsChange

FOLLOWED = (paths.QUEUES, paths.BATCHES, paths.WAITING, paths.PAUSE, paths.HOLDS)
"""The folders that are followed with all that is below them."""

_STATES = {state.value: state for state in JobState}
_BUCKETS = {bucket.value: bucket for bucket in Bucket}


def read_change(path: str, *, present: bool, created_or_deleted: bool) -> FeedChange | None:
    """The change that an event at `path` means; None for znodes that no list shows."""
    match path.split("/")[1:]:
        case ["jobs", "states", state, entry] if state in _STATES and created_or_deleted:
            return _queue_change(_STATES[state], entry, present)
        case ["batches", bid, "states", bucket, jid] if bucket in _BUCKETS and created_or_deleted:
            return BucketChange(jid, bid, _BUCKETS[bucket], present)
        case ["batches", bid] | ["batches", bid, "submission" | "status"]:
            return BatchChange(bid)
        case ["waiting", jid] if created_or_deleted:
            return WaitingChange(jid)
        case ["locks", "queue" | "collections", _]:
            return StopsChange()
        case _:
            return None


def _queue_change(state: JobState, entry: str, present: bool) -> QueueChange | None:
    for priority, jid in paths.read_queue_entries([entry]):
        return QueueChange(jid, state, priority, present)
    return None
