"""The state of the fixity schedule, for the status, which opens no SQL database.

The inventory decides what is due and what is damaged; this node only repeats its sums.
"""

from datetime import datetime

from pipeline.records import Count, Record
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.errors import Corrupt


class FixityStatus(Record):
    """`/fixity`."""

    objects: int = 0
    """Objects in the schedule."""
    damaged: int = 0
    """Objects whose last check found damage."""
    overdue: int = 0
    """Objects that were not read within their period."""
    oldest: datetime | None = None
    """The start of the oldest period that runs."""
    files_intact: Count = 0
    """Files that checks have read and that agreed, since the record was created."""
    files_damaged: Count = 0
    """Files that disagreed or were missing, once for every check."""
    problem: str = ""
    """Why the last run could not read an object; empty if it could."""


def status(session: Session) -> FixityStatus:
    """If the node cannot be read, that is the problem, until the next run writes the state."""
    node = session.get_many([paths.FIXITY])[0]
    try:
        return codec.decode(FixityStatus, node[0] or b"{}", paths.FIXITY) if node else FixityStatus()
    except Corrupt as damage:
        return FixityStatus(problem=str(damage))


def publish(session: Session, new: FixityStatus) -> None:
    """Write the state unless it is there; of two writers the last one counts."""
    node = session.get_many([paths.FIXITY])[0]
    data = codec.encode(new)
    if node is None:
        session.ensure_node(paths.FIXITY, data)
    elif node[0] != data:
        session.ask(session.zk.set_async, paths.FIXITY, data)
