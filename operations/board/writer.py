"""Writes the board: changes that were pushed, comparisons with the record, and what has to be read."""

import gc
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from operations.board.place import Place, after
from operations.board.ring import Ring
from operations.board.rows import JobWrite
from operations.board.table import BatchFacts, Table
from operations.board.tally import Tally
from operations.board.tree import Between, Listings, fill
from operations.board.values import Change
from pipeline.outcome import Deposited, WaitKind
from pipeline.states import BATCH, BatchState, JobState
from zkstate.connection.session import Session
from zkstate.feed import tree
from zkstate.feed.watch import BatchChange, BucketChange, FeedChange, QueueChange, StopsChange, WaitingChange
from zkstate.fleet import holds

READ_LIMIT = 400
"""Jobs that are read in one flush; the others wait for the next one."""

READ_EARLY = 20
"""Working jobs of which the name or the ARK is not known, read before they are SETTLED."""

SETTLED = 2.0
"""Most jobs stay in a state for a shorter time, and are not read there."""


def _nothing() -> None:
    return


@contextmanager
def _garbage_left_alone() -> Iterator[None]:
    """Without the search for reference cycles: it would walk through all new places again and again."""
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.enable()


class Writer:
    """Belongs to one thread."""

    def __init__(self, session: Session, table: Table, ring: Ring, tally: Tally) -> None:
        self._session = session
        self._table = table
        self._ring = ring
        self._tally = tally
        self._listings = Listings()
        self._filled = False

    def flush(self, changes: Sequence[FeedChange], lag: float = 0.0) -> None:
        """Apply what was pushed since the last flush, read what has to be read, and publish the changes."""
        self._tally.count_events(len(changes), lag)
        by_job: dict[str, list[QueueChange | BucketChange]] = defaultdict(list)
        bids: dict[str, None] = {}
        waiting: list[str] = []
        stops = False
        for change in changes:
            match change:
                case QueueChange() | BucketChange():
                    by_job[change.jid].append(change)
                case BatchChange():
                    bids[change.bid] = None
                case WaitingChange():
                    waiting.append(change.jid)
                case StopsChange():
                    stops = True
        of_jobs = {change.bid for change in changes if isinstance(change, BucketChange)}
        batches = self._read_batches(bids, of_jobs)
        with self._table.writing():
            self._table.read_again(waiting)
            jobs = self._apply(by_job)
        self._publish([*batches, *jobs, *self._read_jobs(), *(self._read_stops() if stops else ())])

    def compare(
        self, between: Between = _nothing, unsettled: Iterable[str] = (), *, all_batches: bool
    ) -> int:
        """Make the board agree with the record; the number of jobs and batches that did not.

        `unsettled`, read at the end, are jobs that moved meanwhile: their changes are applied in their order.
        """
        if not self._filled:
            self._fill()
            return 0
        with _garbage_left_alone():
            return self._compare(between, unsettled, all_batches=all_batches)

    def _fill(self) -> None:
        """Nobody follows the board yet: nothing is published."""
        bids = set(tree.batch_ids(self._session))
        self._compare_batches(bids, self._table.batch_statuses(), all_batches=True)
        fill(self._session, self._table, self._listings.mark(self._session, bids))
        self._table.add_indexes()
        self._read_jobs()
        self._read_stops()
        self._filled = True

    def _compare(self, between: Between, unsettled: Iterable[str], *, all_batches: bool) -> int:
        known_statuses = self._table.batch_statuses()
        bids = set(tree.batch_ids(self._session))
        batches = self._compare_batches(bids, known_statuses, all_batches=all_batches)
        between()
        places = self._listings.places(self._session, bids, self._table.places(), between)
        skipped = set(unsettled)
        known = self._table.places()
        settled = (places.keys() | known.keys()) - skipped
        differing = [jid for jid in settled if places.get(jid) != known.get(jid)]
        with self._table.writing():
            jobs = self._place({jid: (places.get(jid, Place()), known.get(jid)) for jid in differing})
        self._publish([*batches, *jobs, *self._read_jobs(), *self._read_stops()])
        return len(differing) + sum(change.subject not in skipped for change in batches)

    def publish_freshness(self) -> None:
        self._ring.add([Change(id="", kind="freshness")])

    def _publish(self, changes: Iterable[Change]) -> None:
        latest: dict[tuple[str, str], Change] = {}
        for change in changes:
            key = change.kind, change.subject
            if key in latest and not change.previous:
                change = change.model_copy(update={"previous": latest[key].previous})
            latest[key] = change
        self._ring.add(latest.values())

    def _apply(self, by_job: dict[str, list[QueueChange | BucketChange]]) -> list[Change]:
        known = self._table.places(by_job)
        placed: dict[str, tuple[Place, Place | None]] = {}
        since = self._table.since(by_job)
        completed: list[str] = []
        moment = time.time()
        for jid, changes in by_job.items():
            before = known.get(jid)
            moved = after(before or Place(), changes)
            placed[jid] = moved.place, before
            state = before.state if before else None
            if state is not moved.place.state is JobState.COMPLETED:
                completed.append(moved.place.bid or "")
            self._count_moves(state, moved.states, since.get(jid), moment)
        submitted = self._table.submitted(set(completed))
        for bid in completed:
            if bid in submitted:
                self._tally.count_completion(max(0.0, moment - submitted[bid]))
        return self._place(placed)

    def _count_moves(
        self, source: JobState | None, states: Sequence[JobState], since: float | None, moment: float
    ) -> None:
        for target in states:
            if source is not None and source is not target:
                self._tally.count_move(source, target, max(0.0, moment - since) if since else None)
            source, since = target, moment

    def _place(self, placed: dict[str, tuple[Place, Place | None]]) -> list[Change]:
        """Write the places that differ; (new, old) by JID."""
        moment = time.time()
        gone = [jid for jid, (place, _) in placed.items() if place.gone]
        removed = [
            change.model_copy(update={"state": "", "previous": change.state})
            for change in self._table.jobs_as_changes(gone)
        ]
        writes = [
            JobWrite(
                jid=jid,
                place=place,
                since=moment,
                previous=old.state if old else None,
                moved=old is None or old.state is not place.state,
            )
            for jid, (place, old) in placed.items()
            if not place.gone and place != old
        ]
        self._table.write_jobs(writes)
        self._table.remove_jobs(gone)
        return [*removed, *self._table.jobs_as_changes([write.jid for write in writes if write.moved])]

    def _changes_of(self, jids: list[str]) -> list[Change]:
        """Nobody follows the board before it is filled, and what happened before is not counted."""
        return self._table.jobs_as_changes(jids) if self._filled else []

    def _read_jobs(self) -> list[Change]:
        """Read jobs of which a list shows more than their place, and that were not read in this state."""
        jids = self._table.unread(READ_LIMIT, READ_EARLY, time.time() - SETTLED)
        if not jids:
            return []
        read = list(tree.read_details(self._session, jids))
        with self._table.writing():
            self._table.write_details(jids, read)
        changes = self._changes_of([detail.jid for detail in read])
        for detail in read:
            if detail.waits_for == WaitKind.RETRY:
                self._tally.count_retry(detail.state)
        kinds = {detail.jid: detail.kind for detail in read if detail.state is JobState.FAILED}
        for change in changes:
            if change.state == JobState.FAILED and (kind := kinds.get(change.subject)) is not None:
                self._tally.count_failure(kind, change.previous)
        return changes

    def _read_batches(self, changed: Iterable[str], of_jobs: set[str]) -> list[Change]:
        """Read batches whose status changed, and those of jobs whose batch is not on the board."""
        unknown = of_jobs - self._table.batch_facts(of_jobs).keys()
        bids = sorted({*changed, *unknown})
        return self._write_batches(bids) if bids else []

    def _write_batches(self, bids: Sequence[str]) -> list[Change]:
        before = self._table.batch_facts(bids)
        read = list(tree.read_batches(self._session, bids))
        missing = set(bids) - {batch.bid for batch in read}
        with self._table.writing():
            self._table.write_batches(read)
            self._table.remove_batches(missing)
        current = self._table.batch_facts(bids)
        differing = [bid for bid in bids if before.get(bid) != current.get(bid)]
        for bid in differing:
            self._count_report(before.get(bid), current.get(bid))
        return [_batch_change(before.get(bid), current.get(bid)) for bid in differing]

    def _count_report(self, before: BatchFacts | None, current: BatchFacts | None) -> None:
        reported = current is not None and current.status in (BatchState.COMPLETED, BatchState.FAILED)
        if before is not None and current is not None and reported and before.status != current.status:
            self._tally.count_report(BatchState(current.status))
            added = Deposited(
                files=max(0, current.files - before.files), bytes=max(0, current.bytes - before.bytes)
            )
            self._tally.count_deposited(current.collection, added)

    def _compare_batches(self, bids: set[str], known: dict[str, str], *, all_batches: bool) -> list[Change]:
        if all_batches:
            checked = bids | known.keys()
        else:
            ended = {state.value for state in BATCH.where(lambda facts: facts.ended)}
            unended = {bid for bid, status in known.items() if status not in ended}
            checked = (bids ^ known.keys()) | unended | set(tree.open_batch_ids(self._session))
        return self._write_batches(sorted(checked)) if checked else []

    def _read_stops(self) -> list[Change]:
        """The pause and the holds; a change of them changes what lists show as held."""
        stops = holds.stops(self._session)
        contents = {name: hold.model_dump_json() for name, hold in stops.items()}
        with self._table.writing():
            changed = self._table.write_holds(contents)
        return [Change(id="", kind="stops")] if changed else []


def _batch_change(before: BatchFacts | None, current: BatchFacts | None) -> Change:
    facts = current or before
    assert facts is not None
    return Change(
        id="",
        kind="batch",
        subject=facts.bid,
        bid=facts.bid,
        collection=facts.collection,
        owner=facts.owner,
        state=current.status if current else "",
        previous=before.status if before else "",
    )
