"""The board of a web process; it is filled from the record while the packages of the web are loaded."""

from collections.abc import Iterator
from contextlib import contextmanager

from operations.board.board import Board
from operations.site import Site
from pipeline.settings import Settings
from zkstate.connection.session import connect

ANSWER_TIMEOUT = 3.0
"""Seconds to wait for an answer of ZooKeeper; after that the API answers 503 with Retry-After."""


@contextmanager
def following(settings: Settings) -> Iterator[tuple[Site, Board]]:
    """The site and its board, until the block ends.

    ZooKeeper may be away: then the pages say so, what helps, and that nothing is known yet.
    """
    with connect(settings, ANSWER_TIMEOUT, answer_timeout=ANSWER_TIMEOUT, required=False) as session:
        board = Board.open(session)
        try:
            yield Site(settings, session), board
        finally:
            board.close()
