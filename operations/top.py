"""The board as one value, for a terminal."""

from datetime import datetime

from operations.board.board import Board
from operations.board.values import CollectionCounts, FailureGroup, Freshness, Scope, Stops
from pipeline.records import Record
from pipeline.states import JobState

CAUSES = 10
"""Causes of failures that are shown."""


class BoardSummary(Record):
    freshness: Freshness
    jobs: dict[JobState, int]
    oldest: dict[JobState, datetime]
    """Since when the job is there that has been in the state for longest."""
    stops: Stops
    failures: tuple[FailureGroup, ...]
    """The most frequent causes."""
    causes: int
    """Causes in all."""
    collections: tuple[CollectionCounts, ...]


def summary(board: Board, scope: Scope) -> BoardSummary:
    failures = board.failures(scope)
    return BoardSummary(
        freshness=board.freshness(),
        jobs=board.counts(scope),
        oldest=board.oldest(scope),
        stops=board.stops(scope),
        failures=failures[:CAUSES],
        causes=len(failures),
        collections=board.collections(scope),
    )
