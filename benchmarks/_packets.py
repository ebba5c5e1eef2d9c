"""ZooKeeper's counters: packets received, nodes, version."""

from zkstate.connection.session import Session


def counters(session: Session) -> dict[str, str]:
    """The server's figures by their names in the command `mntr`."""
    lines = session.zk.command(b"mntr").splitlines()
    return {name: value for name, _, value in (line.partition("\t") for line in lines) if value}


def received(session: Session) -> int:
    """Packets that the server has received so far."""
    return int(counters(session)["zk_packets_received"])
