"""Where a job is, as the folders of the record say it, and how changes of the folders move it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.states import JOB, Bucket, JobState
from zkstate.feed.watch import BucketChange, QueueChange

_STATE_OF_BUCKET = {JOB.facts[state].bucket: state for state in JOB.where(lambda facts: facts.ended)}
"""The state of a job that has left the queue: a completed job leaves it when it is cleaned up."""


class Place(NamedTuple):
    """A job's entry in the queue and in its batch; None where it has none.

    A tuple, because a board is filled with a hundred thousand of them.
    """

    bid: str = ""
    queue: JobState | None = None
    priority: int = 0
    bucket: Bucket | None = None

    @property
    def state(self) -> JobState | None:
        """None for a job that is not in the record, or whose entries contradict each other."""
        if self.queue is not None:
            return self.queue
        return None if self.bucket is None else _STATE_OF_BUCKET.get(self.bucket)

    @property
    def gone(self) -> bool:
        return self.queue is None and self.bucket is None


@dataclass(frozen=True, slots=True)
class Moved:
    """The place after changes, and the states through which the job came there."""

    place: Place
    states: tuple[JobState, ...]


def after(place: Place, changes: Iterable[QueueChange | BucketChange]) -> Moved:
    """The place after `changes`, in their order; an entry that is gone already is not an error."""
    states: list[JobState] = []
    for change in changes:
        place = moved(place, change)
        state = place.state
        if state is not None and (not states or states[-1] is not state):
            states.append(state)
    return Moved(place, tuple(states))


def moved(place: Place, change: QueueChange | BucketChange) -> Place:
    """The place after one change."""
    return _after_queue(place, change) if isinstance(change, QueueChange) else _after_bucket(place, change)


def _after_queue(place: Place, change: QueueChange) -> Place:
    if change.present:
        return Place(place.bid, change.state, change.priority, place.bucket)
    if (place.queue, place.priority) == (change.state, change.priority):
        return Place(place.bid, None, place.priority, place.bucket)
    return place


def _after_bucket(place: Place, change: BucketChange) -> Place:
    if change.present:
        return Place(change.bid, place.queue, place.priority, change.bucket)
    if (place.bid, place.bucket) == (change.bid, change.bucket):
        return Place(place.bid, place.queue, place.priority, None)
    return place
