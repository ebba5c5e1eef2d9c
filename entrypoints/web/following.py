"""The board of a web process; it is filled from the record while the packages of the web are loaded."""

from collections.abc import Iterator
from contextlib import contextmanager

from operations.board.board import Board
from pipeline.settings import Settings
from zkstate.session import Session, connect

ANSWER_TIMEOUT = 3.0
"""Seconds to wait for an answer of ZooKeeper; after that the API answers 503 with Retry-After."""


@contextmanager
def following(settings: Settings) -> Iterator[tuple[Session, Board]]:
    """The session and the board, until the block ends; Unreachable if ZooKeeper does not answer."""
    with connect(settings, answer_timeout=ANSWER_TIMEOUT) as session:
        board = Board.open(session, settings)
        try:
            yield session, board
        finally:
            board.close()
