"""What operators stopped, and what each stop keeps back."""

from operations.board.queries import sums
from operations.board.table import Table
from operations.board.values import Scope, Stop, Stops
from zkstate.holds import Hold

_JOBS = "state IN ('pending', 'held')"
_AMOUNT = "count(*) AS jobs, count(bytes) AS sized, COALESCE(sum(bytes), 0) AS bytes"
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
    jobs = "state = 'pending'" if collection is None else _JOBS
    batches = "false" if collection is None else _BATCHES
    return Stop(
        collection=collection,
        by=hold.by,
        reason=hold.reason,
        at=hold.at,
        via=hold.via,
        **sums(table, _AMOUNT, "job", kept_back, jobs),
        **sums(table, "count(*) AS batches", "batch", kept_back, batches),
    )
