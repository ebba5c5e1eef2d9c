"""Writes the board: pushed changes, comparisons with the record, and job and batch details."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from operations.board.ring import Ring
from operations.board.table import CHECKED, BatchFacts, Place, Table
from operations.board.tally import Tally
from operations.board.values import Change
from pipeline.checks import CheckVerdict, by_verdict
from pipeline.outcome import Deposited, WaitKind
from pipeline.states import BATCH, QUEUED, BatchState, Bucket, JobState
from zkstate import feed
from zkstate.connection.session import Session
from zkstate.feed import (
    BatchChange,
    BucketChange,
    BucketMark,
    FeedChange,
    QueueChange,
    StopsChange,
    WaitingChange,
)
from zkstate.fleet import holds
from zkstate.queue import listings

READ_LIMIT = 400
"""Maximum number of jobs read in one flush; the rest are read in the next one."""

READ_EARLY = 20
"""Maximum number of working jobs of unknown name or ARK that are read before they have SETTLED."""

SETTLED = 2.0
"""Seconds in a state after which a job is read there: most jobs leave sooner and are never read."""

Between = Callable[[], Iterable[str]]
"""Called between two listings to apply changes while a large record is listed; returns the changed ids."""


def _nothing() -> tuple[str, ...]:
    return ()


class Writer:
    """Belongs to one thread."""

    def __init__(self, session: Session, table: Table, ring: Ring, tally: Tally) -> None:
        self._session = session
        self._table = table
        self._ring = ring
        self._tally = tally
        self._marks: dict[tuple[str, Bucket], BucketMark] = {}
        """How each bucket was at its last listing; one that has not changed is not listed again."""
        self._filled = False

    def flush(self, changes: Sequence[FeedChange], lag: float = 0.0) -> None:
        """Apply the changes pushed since the last flush, read details that are due, and publish the
        changes."""
        with self._tally.counting() as tallied:
            tallied.events += len(changes)
            tallied.lag = lag
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

    def compare(self, between: Between = _nothing, *, all_batches: bool) -> int:
        """Make the board agree with the record; returns the number of jobs and batches that did not.

        Jobs and batches that change during the comparison are not compared: their changes are applied in
        order.
        """
        known_statuses = self._table.batch_statuses()
        bids = set(listings.all_batches(self._session))
        batches = self._compare_batches(bids, known_statuses, all_batches=all_batches or not self._filled)
        unsettled = set(between())
        for _ in self._list_places(sorted(bids)):
            unsettled.update(between())
        if self._filled:
            jids = self._table.differing() - unsettled
            listed, known = self._table.places(jids, "listed"), self._table.places(jids)
            with self._table.writing():
                jobs = self._place({jid: (listed.get(jid, Place()), known.get(jid)) for jid in jids})
        else:
            jids, jobs = set(), []
            self._table.fill()
        self._table.end_listing()
        changes = [*batches, *jobs, *self._read_jobs(), *self._read_stops()]
        if not self._filled:
            self._filled = True
            return 0  # nobody follows the board yet: nothing to publish
        self._publish(changes)
        return len(jids) + sum(change.subject not in unsettled for change in batches)

    def _list_places(self, bids: Sequence[str]) -> Iterator[None]:
        """List the folders of all jobs, pausing after each."""
        before, on_board = self._marks, self._table.bucket_sizes()
        self._marks = marks = {
            (bid, bucket): mark for bid, bucket, mark in feed.bucket_marks(self._session, bids)
        }
        unchanged = {
            key
            for key, mark in marks.items()
            if before.get(key) == mark and on_board.get(key, 0) == mark.jobs
        }
        yield
        self._table.begin_listing(unchanged)
        changed = [key for key, mark in marks.items() if mark.jobs and key not in unchanged]
        for bid, bucket, jids in feed.bucket_jids(self._session, changed):
            self._table.list_bucket(bid, bucket, jids)
            yield
        # states in workflow order: a job that moves during the listings is listed twice rather than never
        for state in QUEUED:
            for priority, jids in feed.queued_jids(self._session, state).items():
                self._table.list_queue(state, priority, jids)
            yield

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
            place, states = before or Place(), [before and before.state]
            for change in changes:
                place = place.after(change)
                if place.state is not None and place.state is not states[-1]:
                    states.append(place.state)
            placed[jid] = place, before
            if states[0] is not place.state is JobState.COMPLETED:
                completed.append(place.bid)
            self._count_moves(states, since.get(jid), moment)
        submitted = self._table.submitted(set(completed))
        with self._tally.counting() as tallied:
            for bid in completed:
                if bid in submitted:
                    tallied.completions.add(max(0.0, moment - submitted[bid]))
        return self._place(placed)

    def _count_moves(self, states: Sequence[JobState | None], since: float | None, moment: float) -> None:
        """Count the moves along `states`; `since`: when the job entered the first of them."""
        for source, target in pairwise(states):
            if source is not None and target is not None:
                self._tally.count_move(source, target, max(0.0, moment - since) if since else None)
            since = moment

    def _place(self, placed: dict[str, tuple[Place, Place | None]]) -> list[Change]:
        """Write the places that differ; (new, old) by JID."""
        gone = [jid for jid, (place, _) in placed.items() if place.gone]
        removed = [
            change.model_copy(update={"state": "", "previous": change.state})
            for change in self._table.jobs_as_changes(gone)
        ]
        moved = {jid: (place, old) for jid, (place, old) in placed.items() if not place.gone and place != old}
        entered = self._table.write_jobs(moved, time.time())
        self._table.remove_jobs(gone)
        return [*removed, *self._table.jobs_as_changes(entered)]

    def _read_jobs(self) -> list[Change]:
        """Read the jobs of which lists show more than their place, unless already read in this state."""
        jids = self._table.unread(READ_LIMIT, READ_EARLY, time.time() - SETTLED)
        if not jids:
            return []
        read = list(feed.read_details(self._session, jids))
        with self._table.writing():
            self._table.write_details(jids, read)
        if not self._filled:
            return []  # what happened before is not counted
        changes = self._table.jobs_as_changes(detail.jid for detail in read)
        kinds = {detail.jid: detail.kind for detail in read if detail.state is JobState.FAILED}
        with self._tally.counting() as tallied:
            tallied.retries.update(detail.state for detail in read if detail.waits_for == WaitKind.RETRY)
            for change in changes:
                if change.state == JobState.FAILED and (kind := kinds.get(change.subject)) is not None:
                    tallied.failures[kind, change.previous] += 1
        return changes

    def _read_batches(self, changed: Iterable[str], of_jobs: set[str]) -> list[Change]:
        """Read batches whose status changed, and batches of these jobs that are not on the board."""
        unknown = of_jobs - self._table.batch_facts(of_jobs).keys()
        bids = sorted({*changed, *unknown})
        return self._write_batches(bids) if bids else []

    def _write_batches(self, bids: Sequence[str]) -> list[Change]:
        before = self._table.batch_facts(bids)
        read = list(feed.read_batches(self._session, bids))
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
            with self._tally.counting() as tallied:
                tallied.reports[BatchState(current.status)] += 1
                tallied.deposited[current.collection] += Deposited(
                    files=max(0, current.files - before.files), bytes=max(0, current.bytes - before.bytes)
                )
                earlier = _checked(before)
                for key, number in _checked(current).items():
                    # fewer than before: the files of a job were replaced, and both were checked
                    tallied.checked[key] += max(0, number - earlier[key])

    def _compare_batches(self, bids: set[str], known: dict[str, str], *, all_batches: bool) -> list[Change]:
        if all_batches:
            checked = bids | known.keys()
        else:
            ended = {state.value for state in BATCH.where(lambda facts: facts.ended)}
            unended = {bid for bid, status in known.items() if status not in ended}
            checked = (bids ^ known.keys()) | unended | set(listings.open_batches(self._session))
        return self._write_batches(sorted(checked)) if checked else []

    def _read_stops(self) -> list[Change]:
        """Read the pause and the holds; changing them changes which jobs lists show as held."""
        stops = holds.stops(self._session)
        contents = {name: hold.model_dump_json() for name, hold in stops.items()}
        with self._table.writing():
            changed = self._table.write_holds(contents)
        return [Change(id="", kind="stops")] if changed else []


def _checked(batch: BatchFacts) -> Counter[tuple[str, CheckVerdict]]:
    return by_verdict(CHECKED.validate_json(batch.checked))


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
