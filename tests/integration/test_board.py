"""The read model: what it shows is what the record has, for whoever may see it."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

import pytest
from kazoo.protocol.serialization import int_struct, write_string

from operations.board import board as boards
from operations.board.board import Board
from operations.board.follower import FLUSH_INTERVAL, IDLE_INTERVAL, RETRY_INTERVAL
from operations.board.values import EVERYTHING, BatchSearch, JobSearch, Scope, scope_of
from operations.board.writer import Writer
from operations.fleet.health import overview
from operations.site import Site
from pipeline.errors import UsageRefused
from pipeline.fixity import LARGEST_FILE
from pipeline.principal import Interface, Principal, Role
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind, JobState
from tests.servers.proxy import Proxy
from tests.support import cli as arkline
from tests.support import planting
from tests.support.boards import until
from tests.support.operators import ANN
from zkstate import feed, paths
from zkstate.connection.client import MAX_RECONNECT_DELAY
from zkstate.connection.session import Session, connect
from zkstate.feed import FOLLOWED, Feed, FeedChange
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.queue import queue
from zkstate.record import batches, jobs

LIVING = [state for state in JobState if state is not JobState.DELETED]


@pytest.fixture
def board(session: Session, settings: Settings) -> Iterator[Board]:
    opened = Board.open(session)
    assert opened.wait_filled(30)
    yield opened
    opened.close()


@pytest.fixture
def filled(session: Session, settings: Settings) -> Iterator[Callable[[], Board]]:
    """Opens a board on the record as it is at that moment."""
    opened: list[Board] = []

    def fill() -> Board:
        opened.append(Board.open(session))
        assert opened[-1].wait_filled(30)
        return opened[-1]

    yield fill
    for board in opened:
        board.close()


def every_job(board: Board) -> dict[str, JobState]:
    return {row.jid: row.state for row in board.jobs(EVERYTHING, JobSearch(), 10_000).rows}


def test_a_board_shows_every_job_in_its_state(session: Session, filled: Callable[[], Board]) -> None:
    planted = {planting.job_in(session, state).jid: state for state in LIVING}

    board = filled()

    assert every_job(board) == planted
    assert {state: n for state, n in board.counts(EVERYTHING).items() if n} == Counter(planted.values())


def test_a_completed_job_stays_completed_after_the_clean_up(
    session: Session, filled: Callable[[], Board]
) -> None:
    job = planting.job_in(session, JobState.COMPLETED)
    jobs.clean_up(session, job)

    assert every_job(filled()) == {job.jid: JobState.COMPLETED}


def test_a_failed_job_is_shown_with_its_name_and_its_cause(
    session: Session, filled: Callable[[], Board]
) -> None:
    job = planting.job_in(session, JobState.FAILED)

    (row,) = filled().jobs(EVERYTHING, JobSearch(state=JobState.FAILED), 10).rows

    assert (row.jid, row.bid, row.collection, row.name) == (job.jid, job.bid, "demo", "0.txt")
    assert (row.kind, row.message, bool(row.cause)) == (FailureKind.SYSTEM, "said so", True)
    assert row.since == job.status.since


def test_a_board_follows_moves_and_new_batches(session: Session, board: Board) -> None:
    assert every_job(board) == {}

    bid, jids = planting.split_batch(session, 3)
    planting.apply_event(session, jobs.load(session, jids[0]), Event.ACQUIRE)

    expected = {
        jids[0]: JobState.ESTIMATING,
        jids[1]: JobState.PENDING,
        jids[2]: JobState.PENDING,
    }
    until(board, lambda: every_job(board) == expected)
    (batch,) = board.batches(EVERYTHING, BatchSearch(), 10).rows
    assert (batch.bid, batch.status, batch.jobs) == (
        bid,
        BatchState.PROCESSING,
        {JobState.ESTIMATING: 1, JobState.PENDING: 2},
    )


def test_changes_carry_the_new_and_the_former_state(session: Session, board: Board) -> None:
    job = planting.job_in(session, JobState.PENDING)
    until(board, lambda: every_job(board) == {job.jid: JobState.PENDING})
    last = board.changes_since(None).last

    planting.apply_event(session, job, Event.ACQUIRE)

    until(board, lambda: bool(board.changes_since(last).changes))
    change = next(c for c in board.changes_since(last).changes if c.kind == "job")
    assert (change.subject, change.state, change.previous) == (job.jid, "estimating", "pending")
    assert board.changes_since(change.id).last == board.changes_since(last).last


def test_an_unknown_event_id_asks_for_a_reset(board: Board) -> None:
    assert board.changes_since("other.12").reset
    assert not board.changes_since(board.changes_since(None).last).reset


def test_a_job_that_is_deleted_leaves_the_lists(session: Session, board: Board) -> None:
    job = planting.job_in(session, JobState.FAILED)
    until(board, lambda: every_job(board) == {job.jid: JobState.FAILED})

    planting.apply_event(session, job, Event.DELETE)

    until(board, lambda: every_job(board) == {})
    assert board.jobs(EVERYTHING, JobSearch(state=JobState.DELETED), 10).total == 1


def test_pages_follow_each_other_without_gaps(session: Session, filled: Callable[[], Board]) -> None:
    _, jids = planting.split_batch(session, 7)
    board = filled()
    for search in (JobSearch(), JobSearch(state=JobState.PENDING), JobSearch(collection="demo")):
        rows, cursor = [], None
        while True:
            page = board.jobs(EVERYTHING, search, 3, cursor)
            assert page.total == 7
            rows += [row.jid for row in page.rows]
            if (cursor := page.next) is None:
                break
        assert sorted(rows) == jids
        assert len(rows) == 7


def test_a_foreign_cursor_is_refused(board: Board) -> None:
    with pytest.raises(UsageRefused, match="is not a cursor of this list"):
        board.jobs(EVERYTHING, JobSearch(), 3, "x'; DROP TABLE job")
    with pytest.raises(UsageRefused, match="is not a cursor of this list"):
        board.jobs(EVERYTHING, JobSearch(state=JobState.PENDING), 3, f"{1 << 64}-jid0000000001")


def test_jobs_are_searched_by_id_batch_and_name(session: Session, filled: Callable[[], Board]) -> None:
    job = planting.job_in(session, JobState.FAILED)
    planting.one_job(session)
    board = filled()

    for text in (job.jid, job.bid, "0.T"):
        rows = board.jobs(EVERYTHING, JobSearch(q=text), 10).rows
        assert [row.jid for row in rows] == [job.jid], text
    assert board.jobs(EVERYTHING, JobSearch(q="%"), 10).total == 0


def test_a_depositor_sees_only_its_own_batches(session: Session, filled: Callable[[], Board]) -> None:
    own, other = (
        batches.submit(session, planting.submission(owner=owner)) for owner in ("token:ann", "token:bob")
    )
    board = filled()
    ann = Principal(name="ann", role=Role.DEPOSITOR, interface=Interface.API)

    assert [row.bid for row in board.batches(scope_of(ann), BatchSearch(), 10).rows] == [own]
    assert board.batches(scope_of(ann), BatchSearch(q=other), 10).total == 0
    assert board.batches(Scope(collections=frozenset()), BatchSearch(), 10).total == 0
    assert board.batches(EVERYTHING, BatchSearch(), 10).total == 2


def test_changes_are_given_only_to_those_who_may_see_the_batch(session: Session, board: Board) -> None:
    last = board.changes_since(None).last
    bid = batches.submit(session, planting.submission(owner="token:ann"))
    until(board, lambda: board.batches(EVERYTHING, BatchSearch(), 10).total == 1)

    ann, bob = (board.changes_since(last, Scope(owner=f"token:{name}")).changes for name in ("ann", "bob"))

    assert bid in {change.subject for change in ann}
    assert {change.kind for change in bob} <= {"stops", "freshness"}


def test_failures_are_grouped_by_cause_with_their_owner(
    session: Session, filled: Callable[[], Board]
) -> None:
    _, jids = planting.split_batch(session, 3)
    for jid, kind in zip(jids, (FailureKind.CONTENT, FailureKind.CONTENT, FailureKind.SYSTEM), strict=True):
        planting.apply_event(session, jobs.load(session, jid), Event.FAIL, kind)
    board = filled()

    groups = board.failures(EVERYTHING)

    assert [(group.kind, group.owner, group.count) for group in groups] == [
        (FailureKind.CONTENT, "depositor", 2),
        (FailureKind.SYSTEM, "operator", 1),
    ]
    assert groups[0].example == jids[0]
    assert board.jobs(EVERYTHING, JobSearch(cause=groups[0].id), 10).total == 2


def test_of_very_many_causes_the_most_frequent_are_listed_and_each_is_found(
    session: Session, filled: Callable[[], Board], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, jids = planting.split_batch(session, 3)
    for jid, kind in zip(jids, (FailureKind.CONTENT, FailureKind.SYSTEM, FailureKind.SYSTEM), strict=True):
        planting.apply_event(session, jobs.load(session, jid), Event.FAIL, kind)
    board = filled()
    frequent, rare = board.failures(EVERYTHING)
    monkeypatch.setattr(boards, "CAUSES", 1)

    assert board.failures(EVERYTHING) == (frequent,)
    assert board.failures(EVERYTHING, rare.id) == (rare,)


def test_stops_say_how_many_jobs_they_keep_back(session: Session, board: Board) -> None:
    planting.split_batch(session, 2)
    holds.place(session, Hold(by="ann@here", reason="the disk is full"), "demo")
    holds.place(session, Hold(by="bob@here", reason="release"))

    until(board, lambda: board.counts(EVERYTHING)[JobState.PENDING] == 2)
    until(board, lambda: board.stops(EVERYTHING).pause is not None)
    until(board, lambda: len(board.stops(EVERYTHING).collections) == 1)
    stops = board.stops(EVERYTHING)
    (hold,) = stops.collections
    assert stops.pause is not None
    assert (stops.pause.by, stops.pause.reason, stops.pause.jobs) == ("bob@here", "release", 2)
    assert (hold.collection, hold.by, hold.jobs) == ("demo", "ann@here", 2)
    assert all(row.held for row in board.jobs(EVERYTHING, JobSearch(), 10).rows)
    assert board.collections(EVERYTHING)[0].held


def held_jobs(session: Session, count: int, size: int) -> None:
    for jid in planting.split_batch(session, count, size=size)[1]:
        planting.apply_event(session, jobs.load(session, jid), Event.HOLD)
    holds.place(session, Hold(by="ann@here", reason="the disk is full"), "demo")


def test_a_size_that_an_earlier_release_accepted_hides_no_job(
    session: Session, filled: Callable[[], Board]
) -> None:
    held_jobs(session, 2, 1 << 64)

    board = filled()

    assert [row.state for row in board.jobs(EVERYTHING, JobSearch(), 10).rows] == [JobState.HELD] * 2
    (hold,) = board.stops(EVERYTHING).collections
    assert (hold.jobs, hold.sized, hold.bytes) == (2, 0, 0)


def test_declared_sizes_are_added_up_whatever_their_sum(
    session: Session, filled: Callable[[], Board]
) -> None:
    number = (1 << 63) // LARGEST_FILE + 1
    held_jobs(session, number, LARGEST_FILE)

    board = filled()

    until(board, lambda: board.stops(EVERYTHING).collections[0].sized == number)
    assert board.stops(EVERYTHING).collections[0].bytes == pytest.approx(number * LARGEST_FILE, rel=0.01)


def test_a_damaged_job_is_shown_and_spoils_no_list(session: Session, filled: Callable[[], Board]) -> None:
    job = planting.job_in(session, JobState.FAILED)
    status, _ = session.get(paths.job_status(job.jid))
    session.zk.set(paths.job_status(job.jid), b"{")

    board = filled()

    assert every_job(board) == {job.jid: JobState.FAILED}
    session.zk.set(paths.job_status(job.jid), status)
    assert queue.queued(session, JobState.FAILED)


def record_states(session: Session) -> dict[str, JobState]:
    return {
        jid: state
        for state in JobState
        if state is not JobState.DELETED
        for jid in queue.queued(session, state)
    }


@pytest.fixture
def behind_proxy(shaky: Session, settings: Settings) -> Iterator[Board]:
    """A board whose connection can be cut."""
    opened = Board.open(shaky)
    assert opened.wait_filled(30)
    yield opened
    opened.close()


def test_a_lost_connection_shows_as_stale_and_the_board_catches_up(
    session: Session, behind_proxy: Board, zookeeper_proxy: Proxy
) -> None:
    board = behind_proxy
    _, jids = planting.split_batch(session, 5)
    until(board, lambda: every_job(board) == record_states(session))
    assert not board.freshness().stale

    zookeeper_proxy.refuse()
    until(board, lambda: board.freshness().stale)
    for jid in jids[:3]:
        planting.apply_event(session, jobs.load(session, jid), Event.ACQUIRE)
    assert board.counts(EVERYTHING)[JobState.PENDING] == 5
    since = board.freshness()
    zookeeper_proxy.accept()

    until(board, lambda: not board.freshness().stale)
    assert every_job(board) == record_states(session)
    fresh = board.freshness()
    assert since.stale_since is not None
    assert (fresh.resyncs, fresh.corrections, fresh.following) == (1, 0, True)


def test_a_board_tries_again_soon_enough_to_be_compared_within_five_seconds() -> None:
    assert MAX_RECONNECT_DELAY + max(RETRY_INTERVAL, IDLE_INTERVAL) + FLUSH_INTERVAL < 5


def test_the_board_equals_the_record_after_moves_under_connection_cuts(
    session: Session, behind_proxy: Board, zookeeper_proxy: Proxy
) -> None:
    board = behind_proxy
    _, jids = planting.split_batch(session, 60)
    for number, jid in enumerate(jids):
        if number % 20 == 10:
            zookeeper_proxy.cut()
        job = planting.apply_event(session, jobs.load(session, jid), Event.ACQUIRE)
        planting.apply_event(session, job, Event.SUCCEED if number % 3 else Event.FAIL)

    until(board, lambda: every_job(board) == record_states(session))
    assert board.freshness().corrections == 0


def test_a_comparison_corrects_a_difference_and_counts_it(
    session: Session, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = planting.one_job(session)
    until(board, lambda: every_job(board) == {job.jid: JobState.PENDING})
    # the last change of the submission, so that none of them brings the job back
    until(board, lambda: [row.total for row in board.batches(EVERYTHING, BatchSearch(), 1).rows] == [1])
    with board._table.writing():
        board._table.remove_jobs([job.jid])

    monkeypatch.setattr(board._follower, "_compare_at", 0.0)

    until(board, lambda: board.freshness().corrections == 1)
    assert every_job(board) == {job.jid: JobState.PENDING}


def test_a_difference_arms_the_feed_again_and_is_named_in_the_status(
    session: Session, settings: Settings, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    planting.one_job(session)
    until(board, lambda: [row.total for row in board.batches(EVERYTHING, BatchSearch(), 1).rows] == [1])
    with board._table.writing():
        board._table.remove_jobs(list(every_job(board)))

    monkeypatch.setattr(board._follower, "_compare_at", 0.0)

    until(board, lambda: (board.freshness().resyncs, board.freshness().stale) == (1, False))
    correction = overview(Site(settings, session), ANN).correction
    assert correction is not None
    assert correction.differences == 1
    assert "showed 1 job or batch otherwise than the record" in arkline.run(settings, "status").out


@dataclass(frozen=True)
class RemoveWatches:
    """A request of ZooKeeper 3.5 that kazoo does not have: the server forgets a watch, and says nothing."""

    path: str
    type: ClassVar[int] = 18

    def serialize(self) -> bytes:
        any_kind = 3
        return bytes(write_string(self.path) + int_struct.pack(any_kind))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> None:
        """The answer has no content."""


@pytest.mark.parametrize("silent", FOLLOWED)
def test_a_board_whose_watch_has_gone_silent_notices_and_follows_again(
    session: Session, settings: Settings, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "PROOF_INTERVAL", 0.2)
    with connect(settings) as own:
        board = Board.open(own)
        try:
            assert board.wait_filled(30)
            own.zk.request(RemoveWatches(f"{own.zk.chroot}{silent}")).get(timeout=30)
            job = planting.one_job(session)
            holds.place(session, Hold(by="ann"), "demo")

            until(board, lambda: (board.freshness().resyncs, board.freshness().stale) == (1, False))
            assert every_job(board) == {job.jid: JobState.PENDING}
            assert [stop.collection for stop in board.stops(EVERYTHING).collections] == ["demo"]
            assert board.freshness().corrections == 0
        finally:
            board.close()


def test_a_server_that_has_stopped_to_answer_makes_the_board_stale_before_the_connection_is_lost(
    session: Session, settings: Settings, zookeeper_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "PROOF_INTERVAL", 0.2)
    monkeypatch.setattr(feed, "PROOF_TIMEOUT", 1.0)
    patient = {"zk_hosts": zookeeper_proxy.hosts, "zk_session_timeout": 60}
    with connect(settings.model_copy(update=patient), answer_timeout=2.0) as own:
        board = Board.open(own)
        try:
            assert board.wait_filled(30)
            zookeeper_proxy.partition()

            until(board, lambda: board.freshness().stale)
            assert own.connected
        finally:
            zookeeper_proxy.cut()
            board.close()


def test_feeds_share_the_writes_that_prove_them(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # longer than the machine has run: what was never heard is no proof
    monkeypatch.setattr(feed, "PROOF_INTERVAL", time.monotonic() + 600)
    with ExitStack() as opened:
        sessions = [opened.enter_context(connect(settings)) for _ in range(4)]
        feeds = [opened.enter_context(Feed(own, lambda _: None, lambda _: None)) for own in sessions]
        assert all(each.arm() for each in feeds)
        written = session.get(paths.BATCHES)[1].version

        for own, each in zip(sessions, feeds, strict=True):
            own.get_synced(paths.BATCHES)  # the event of an earlier write precedes the answer
            assert each.prove() > 0
        assert session.get(paths.BATCHES)[1].version == written + 1


def test_a_board_follows_again_after_an_error_that_nobody_expected(
    session: Session, board: Board, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flush, raised = Writer.flush, threading.Event()

    def flush_or_raise(writer: Writer, changes: Sequence[FeedChange], lag: float = 0.0) -> None:
        if not raised.is_set():
            raised.set()
            raise ValueError("nobody expected this")
        flush(writer, changes, lag)

    monkeypatch.setattr(Writer, "flush", flush_or_raise)
    assert raised.wait(10)
    job = planting.job_in(session, JobState.PENDING)

    until(board, lambda: every_job(board) == {job.jid: JobState.PENDING} and not board.freshness().stale)
    assert "nobody expected this" in caplog.text


def test_without_pushed_changes_the_record_is_listed_again(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feed, "arm", lambda _: False)  # as a server before 3.6 answers
    board = Board.open(session)
    try:
        assert board.wait_filled(30)
        job = planting.one_job(session)
        until(board, lambda: every_job(board) == {job.jid: JobState.PENDING})
        assert not board.freshness().following
    finally:
        board.close()


def test_moves_and_failures_are_counted(session: Session, board: Board) -> None:
    job = planting.one_job(session)
    until(board, lambda: every_job(board) == {job.jid: JobState.PENDING})

    planting.apply_event(session, job, Event.FAIL, FailureKind.CONTENT)

    until(board, lambda: bool(board.tally().failures))
    tallied = board.tally()
    assert tallied.moves == {(JobState.PENDING, JobState.FAILED): 1}
    assert tallied.failures == {(FailureKind.CONTENT, "pending"): 1}
