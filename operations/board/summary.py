"""The board as one value, for a terminal."""

from datetime import datetime

from operations.board.board import Board
from operations.board.values import (
    BatchPage,
    BatchSearch,
    CollectionCounts,
    FailureGroup,
    Freshness,
    Scope,
    Stops,
    scope_of,
)
from pipeline.principal import Principal
from pipeline.profiles.profile import Profiles
from pipeline.records import Record
from pipeline.states import JobState
from zkstate.errors import Missing

CAUSES = 10
"""Causes of failures that are shown."""


LATEST = 10
"""Batches that a terminal shows."""


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


class LiveView(Record):
    """The board as a terminal shows it while it changes."""

    summary: BoardSummary
    batches: BatchPage
    """The latest."""
    problem: str = ""
    """Why the view is stale, if it was read over the API and the site does not answer."""

    def stale(self, problem: str) -> "LiveView":
        """This view, which cannot be read again now."""
        freshness = self.summary.freshness.model_copy(update={"stale": True})
        summary = self.summary.model_copy(update={"freshness": freshness})
        return self.model_copy(update={"summary": summary, "problem": problem})


def live_view(board: Board, scope: Scope) -> LiveView:
    return LiveView(summary=summary(board, scope), batches=board.batches(scope, BatchSearch(), LATEST))


def collection_counts(board: Board, profiles: Profiles, principal: Principal, name: str) -> CollectionCounts:
    """The row of the list of collections, or an empty one; Missing unless the principal may see it."""
    scope = scope_of(principal)
    if scope.collections is None or name in scope.collections:
        narrowed = Scope(collections=frozenset({name}), owner=scope.owner)
        for counts in board.collections(narrowed):
            return counts
        if name in profiles.names():
            held = any(stop.collection == name for stop in board.stops(narrowed).collections)
            return CollectionCounts(collection=name, jobs={}, batches={}, held=held)
    raise Missing(f"there is no collection {name}")
