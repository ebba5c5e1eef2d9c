"""The record compared with the board: the places of all jobs from listings, and the batches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from operations.board.place import Place, moved
from pipeline.states import Bucket
from zkstate.feed import tree
from zkstate.feed.changes import BucketChange, QueueChange
from zkstate.feed.tree import BucketMark
from zkstate.session import Session

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
