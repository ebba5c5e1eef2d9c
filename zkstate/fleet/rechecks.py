"""Requests to check stored objects again, which scheduled work fulfils, the oldest first.

The findings are in the inventory, as those of all runs. `/rechecks` has what these do not tell: who asked,
how far the request is, and what could not be checked.
"""

from datetime import datetime

from pydantic import Field

from pipeline import codes
from pipeline.checks import CheckSummary, Stage
from pipeline.errors import ArklineError
from pipeline.records import RewrittenRecord
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.record.node import Node

WAITING = 50
"""Maximum requests that have not ended."""

KEPT = 50
"""Requests that have ended and are kept, the last ones."""

PROBLEMS = 20
MESSAGE_LIMIT = 300
"""Problems that a request names, and the characters of each."""


class RecheckProblem(RewrittenRecord):
    """A version that could not be checked."""

    version: int
    check: str
    problem: str


class AskedRecheck(RewrittenRecord):
    """A request to check an object again."""

    id: str
    ark: str
    check: str | None = None
    """None: all checks of the profile."""
    by: str
    at: datetime
    began: datetime | None = None
    ended: datetime | None = None
    message: str = ""
    """Why nothing was checked, or what the request waits for."""
    problems: tuple[RecheckProblem, ...] = ()

    def is_met_by(self, run: CheckSummary) -> bool:
        """Whether the run of a version of the object was made for the request."""
        recorded = run.stage is Stage.RECORDED and self.check in (None, run.check)
        return recorded and self.began is not None and run.at >= self.began

    def is_same(self, other: "AskedRecheck") -> bool:
        return (self.ark, self.check) == (other.ark, other.check)


class AskedRechecks(RewrittenRecord):
    """`/rechecks`."""

    requests: tuple[AskedRecheck, ...] = Field(())
    """In the order in which they were made."""


_NODE = Node(paths.RECHECKS, AskedRechecks, lambda _: AskedRechecks())


def ask(session: Session, asked: AskedRecheck) -> AskedRecheck:
    """Enter the request; if there is one for the same that has not ended, that one.

    Error `too-many-rechecks` at the limit.
    """

    def added(known: AskedRechecks) -> AskedRechecks:
        waiting = [one for one in known.requests if one.ended is None]
        if any(one.id == asked.id or one.is_same(asked) for one in waiting):
            return known
        if len(waiting) >= WAITING:
            raise ArklineError(
                f"{len(waiting)} objects wait already to be checked again: ask again when some are done",
                code=codes.TOO_MANY_RECHECKS,
            )
        return known.model_copy(update={"requests": (*known.requests, asked)})

    session.ensure_node(paths.RECHECKS)
    known = _NODE.change(session, added).requests
    return next(one for one in known if one.ended is None and one.is_same(asked))


def find(session: Session, recheck_id: str) -> AskedRecheck | None:
    known = _NODE.read(session) or AskedRechecks()
    return next((one for one in known.requests if one.id == recheck_id), None)


def waiting(session: Session) -> tuple[AskedRecheck, ...]:
    """The requests that have not ended, the oldest first."""
    known = _NODE.read(session) or AskedRechecks()
    return tuple(one for one in known.requests if one.ended is None)


def update(session: Session, asked: AskedRecheck, **facts: object) -> None:
    """Enter how far the request is; of those that have ended, the oldest are dropped."""

    def changed(known: AskedRechecks) -> AskedRechecks:
        requests = [
            one.model_copy(update=facts) if one.id == asked.id and one.ended is None else one
            for one in known.requests
        ]
        ended = [one.id for one in requests if one.ended is not None]
        dropped = set(ended[: max(0, len(ended) - KEPT)])
        return known.model_copy(update={"requests": tuple(one for one in requests if one.id not in dropped)})

    _NODE.change(session, changed)
