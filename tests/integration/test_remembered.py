"""A node that many jobs read is read once for each session, and again only after it has changed."""

from collections.abc import Iterator

import pytest

from pipeline.settings import Settings
from tests.servers.proxy import Proxy
from zkstate.connection import remembered
from zkstate.connection.remembered import Remembered
from zkstate.connection.session import Session, connect

PATH = "/ids/remembered"


@pytest.fixture
def other(settings: Settings) -> Iterator[Session]:
    with connect(settings) as opened:
        yield opened


def read(session: Session) -> Remembered[str]:
    return remembered.read(session, PATH, bytes.decode)


def asked(session: Session) -> int:
    """The requests that this session has sent so far."""
    return int(session.zk._connection._xid)


def test_a_node_is_read_once_for_many_jobs(session: Session) -> None:
    session.ensure_node(PATH, b"as it is")
    assert read(session).value == "as it is"
    before = asked(session)

    assert {read(session).value for _ in range(10)} == {"as it is"}
    assert asked(session) == before


def test_the_absence_of_a_node_is_remembered_too(session: Session) -> None:
    assert read(session).value is None
    before = asked(session)

    assert read(session).value is None
    assert asked(session) == before


@pytest.mark.parametrize("first", [None, b"before"])
def test_a_node_that_somebody_writes_is_read_again(
    session: Session, other: Session, first: bytes | None
) -> None:
    if first is not None:
        other.ensure_node(PATH, first)
    known = read(session)

    other.ensure_node(PATH) if first is None else None
    other.ask(other.zk.set_async, PATH, b"after")

    assert known.changed.wait(30)
    assert read(session).value == "after"


def test_a_node_that_somebody_deletes_is_read_again(session: Session, other: Session) -> None:
    other.ensure_node(PATH, b"before")
    known = read(session)

    other.ask(other.zk.delete_async, PATH)

    assert known.changed.wait(30)
    assert read(session).value is None


def test_a_session_that_writes_a_node_forgets_it_at_once(session: Session) -> None:
    session.ensure_node(PATH, b"before")
    read(session)

    session.ask(session.zk.set_async, PATH, b"after")
    remembered.forget(session, PATH)

    assert read(session).value == "after"


def test_nothing_is_remembered_beyond_a_connection(
    shaky: Session, session: Session, zookeeper_proxy: Proxy
) -> None:
    session.ensure_node(PATH, b"before")
    known = read(shaky)
    connections = shaky.connections

    zookeeper_proxy.cut()
    assert known.changed.wait(30)
    session.ask(session.zk.set_async, PATH, b"after")

    assert read(shaky).value == "after"
    assert shaky.connections > connections


def test_what_cannot_be_read_is_not_remembered(session: Session) -> None:
    session.ensure_node(PATH, b"\xff")

    for _ in range(2):
        with pytest.raises(UnicodeDecodeError):
            read(session)


def test_a_session_remembers_a_limited_number_of_nodes(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "MOST", 3)
    for number in range(10):
        remembered.read(session, f"{PATH}-{number}", bytes.decode)

    assert len(remembered._nodes(session)) <= 3
