"""The end of the last complete audit and the number of its findings, which the metrics show."""

from datetime import datetime

from pipeline.records import Count, Record
from zkstate import codec, paths
from zkstate.errors import Corrupt
from zkstate.reading import log_damage
from zkstate.session import Session


class LastAudit(Record):
    """`/audit`."""

    at: datetime
    findings: Count


def last(session: Session) -> LastAudit | None:
    """None before the first audit, and if the node is damaged; the next audit replaces a damaged node."""
    node = session.get_many([paths.AUDIT])[0]
    if node is None:
        return None
    try:
        return codec.decode(LastAudit, node[0], paths.AUDIT)
    except Corrupt as damage:
        log_damage(damage)
        return None


def publish(session: Session, ended: LastAudit) -> None:
    """Of two audits the one that ended last counts."""
    data = codec.encode(ended)
    session.ensure_node(paths.AUDIT, data)
    session.ask(session.zk.set_async, paths.AUDIT, data)
