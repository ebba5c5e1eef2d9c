"""The last time that a web process found its board to differ from the record, for the status.

No process can ask another one for its board; the status is asked beside a site's web processes.
"""

import socket
from datetime import datetime

from pipeline.records import Count, Record, now
from zkstate import codec, paths
from zkstate.errors import Corrupt
from zkstate.reading import log_damage
from zkstate.session import Session


class Correction(Record):
    """`/board`."""

    at: datetime
    differences: Count
    """Jobs and batches that the board showed otherwise than the record."""
    host: str
    """The machine of the web process."""


def last_correction(session: Session) -> Correction | None:
    """None before the first one, and if the node is damaged; the next one replaces a damaged node."""
    node = session.find(paths.BOARD)
    if node is None:
        return None
    try:
        return codec.decode(Correction, node[0], paths.BOARD)
    except Corrupt as damage:
        log_damage(damage)
        return None


def note_correction(session: Session, differences: int) -> None:
    """Of two processes the last one counts."""
    data = codec.encode(Correction(at=now(), differences=differences, host=socket.gethostname()))
    session.ensure_node(paths.BOARD, data)
    session.ask(session.zk.set_async, paths.BOARD, data)
