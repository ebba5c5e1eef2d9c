"""Memory figures of this session's ZooKeeper server; any of them may be unknown.

A server answers `envi` and `mntr` only if its `4lw.commands.whitelist` names them, as that of the shipped
stacks does.
"""

from kazoo.exceptions import KazooException

from pipeline.records import Record
from zkstate.connection.session import Session


class ServerMemory(Record):
    heap_bytes: int | None = None
    """The most that Java takes for its heap."""
    znodes: int | None = None
    data_bytes: int | None = None
    """Of all znodes, their paths included."""


def heap_bytes(session: Session) -> int | None:
    return _megabytes(_answer(session, b"envi", "=").get("os.memory.max", ""))


def read(session: Session) -> ServerMemory:
    counters = _answer(session, b"mntr", "\t")
    return ServerMemory(
        heap_bytes=heap_bytes(session),
        znodes=_number(counters.get("zk_znode_count", "")),
        data_bytes=_number(counters.get("zk_approximate_data_size", "")),
    )


def _answer(session: Session, command: bytes, separator: str) -> dict[str, str]:
    """The lines `NAME SEPARATOR VALUE`; none if the server does not answer the command."""
    try:
        lines = str(session.zk.command(command)).splitlines()
    except (KazooException, OSError, session.zk.handler.timeout_exception):
        return {}
    return {name: value for name, _, value in (line.partition(separator) for line in lines) if value}


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _megabytes(text: str) -> int | None:
    number = _number(text.removesuffix("MB"))
    return None if number is None else number << 20
