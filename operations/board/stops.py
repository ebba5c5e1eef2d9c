"""What operators stopped, and what each stop keeps back."""

from operations.board.queries import count
from operations.board.table import Table
from operations.board.values import Scope, Stop, Stops
from zkstate.holds import Hold

_JOBS = "state IN ('pending', 'held')"
_BATCHES = "status IN ('pending', 'held')"


def stops(table: Table, scope: Scope) -> Stops:
    """The pause and the holds of the caller's collections, with the caller's jobs that they keep back."""
    pause = None
    collections = []
    for row in table.read("SELECT collection, content FROM hold ORDER BY collection"):
        name = row["collection"] or None
        hold = Hold.model_validate_json(row["content"])
        if name is None:
            pause = _stop(table, scope, hold, None)
        elif scope.collections is None or name in scope.collections:
            collections.append(_stop(table, scope, hold, name))
    return Stops(pause=pause, collections=tuple(collections))


def _stop(table: Table, scope: Scope, hold: Hold, collection: str | None) -> Stop:
    names = scope.collections if collection is None else frozenset({collection})
    kept_back = Scope(collections=names, owner=scope.owner)
    return Stop(
        collection=collection,
        by=hold.by,
        reason=hold.reason,
        at=hold.at,
        via=hold.via,
        jobs=count(table, "job", kept_back, "state = 'pending'" if collection is None else _JOBS),
        batches=0 if collection is None else count(table, "batch", kept_back, _BATCHES),
    )
