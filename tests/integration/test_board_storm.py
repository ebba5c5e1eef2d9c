"""The board and the record after moves as fast as ZooKeeper takes them, cuts, and a restart of the server."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from pydantic import SecretStr

from operations.board.board import Board
from operations.board.values import EVERYTHING
from pipeline.settings import Settings
from pipeline.states import QUEUED, Bucket, JobState
from tests.servers import zookeeper
from tests.servers.proxy import Proxy
from tests.support import planting
from tests.support.boards import until
from zkstate import feed, paths
from zkstate.connection.session import Session, connect

WAY = (JobState.PENDING, JobState.ESTIMATING, JobState.PROVISIONING, JobState.DOWNLOADING)
JIDS = [f"jid{number:010d}" for number in range(1_000_001, 1_001_001)]
IN_FLIGHT = 50
"""Transactions that are under way at a time; ZooKeeper then takes more than 1,000 a second."""


@contextmanager
def opened(settings: Settings) -> Iterator[Board]:
    with connect(settings) as session:
        board = Board.open(session)
        try:
            assert board.wait_filled(30)
            yield board
        finally:
            board.close()


def place(session: Session, bid: str) -> None:
    """The entries that lists show of `JIDS`, as pending jobs of the batch."""
    for start in range(0, len(JIDS), 200):
        entries = session.zk.transaction()
        for jid in JIDS[start : start + 200]:
            entries.create(paths.queue_entry(WAY[0], 5, jid))
            entries.create(paths.batch_entry(bid, Bucket.PROCESSING, jid))
        entries.commit()


def move_all(session: Session, source: JobState, target: JobState, after_half: Callable[[], object]) -> None:
    flights = []
    for number, jid in enumerate(JIDS):
        if number == len(JIDS) // 2:
            after_half()
        move = session.zk.transaction()
        move.delete(paths.queue_entry(source, 5, jid))
        move.create(paths.queue_entry(target, 5, jid))
        flights.append(move.commit_async())
        if len(flights) > IN_FLIGHT:
            flights.pop(0).get(timeout=30)
    for flight in flights:
        flight.get(timeout=30)


def shows_record(board: Board, session: Session) -> bool:
    in_record = {state: sum(map(len, feed.queued_jids(session, state).values())) for state in QUEUED}
    return {state: n for state, n in board.counts(EVERYTHING).items() if n} == {
        state: n for state, n in in_record.items() if n
    }


def test_the_board_equals_the_record_after_a_thousand_moves_a_second_and_cuts(
    settings: Settings, zookeeper_proxy: Proxy
) -> None:
    behind_proxy = settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})
    with connect(settings) as session, opened(behind_proxy) as board:
        bid, _ = planting.split_batch(session, 1)
        place(session, bid)
        for source, target in pairwise(WAY):
            move_all(session, source, target, zookeeper_proxy.cut)

        until(board, lambda: shows_record(board, session) and not board.freshness().stale)

        assert board.counts(EVERYTHING)[WAY[-1]] == len(JIDS)
        assert board.freshness().corrections == 0
        assert board.freshness().resyncs >= 1


def test_the_board_follows_a_server_that_was_restarted(settings: Settings, tmp_path: Path) -> None:
    with zookeeper.running(tmp_path / "own", tick=500) as server:
        own = settings.model_copy(update={"zk_hosts": server.hosts})
        with connect(own) as session, opened(own) as board:
            bid, _ = planting.split_batch(session, 1)
            place(session, bid)
            until(board, lambda: shows_record(board, session))

            server.process.terminate()
            server.process.wait(20)
            until(board, lambda: board.freshness().stale)
            assert board.counts(EVERYTHING)[JobState.PENDING] == len(JIDS) + 1
            server.start()
            assert session.wait_connected(time.monotonic() + 30)
            move_all(session, *WAY[:2], lambda: None)

            until(board, lambda: shows_record(board, session) and not board.freshness().stale)
            assert board.counts(EVERYTHING)[JobState.ESTIMATING] == len(JIDS)


class Awaited(logging.Handler):
    """Sets its event when a message has the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.seen = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.seen.set()


def test_a_board_whose_user_may_not_read_says_so_and_is_not_taken_for_empty(settings: Settings) -> None:
    def of(user: str) -> Settings:
        return settings.model_copy(update={"zk_user": user, "zk_password": SecretStr(user)})

    refusal = Awaited("check ARKLINE_ZK_USER")
    log = logging.getLogger("arkline.board")
    log.addHandler(refusal)
    with connect(of("fleet")) as owner, connect(of("stranger")) as session:
        planting.one_job(owner)
        board = Board.open(session)
        try:
            assert refusal.seen.wait(30)
            assert board.freshness().stale
            assert not board.wait_filled(0)
        finally:
            board.close()
            log.removeHandler(refusal)
