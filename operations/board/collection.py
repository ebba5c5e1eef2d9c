"""One collection of the board, limited to what the caller may see."""

from operations.board.board import Board
from operations.board.values import CollectionCounts, Scope, scope_of
from pipeline.principal import Principal
from pipeline.profiles.profile import Profiles
from zkstate.errors import Missing


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
