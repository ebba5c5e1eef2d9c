"""The record's counters, which may be behind the numbers in other stores, and are only ever raised."""

from urllib.parse import unquote

from pipeline.records import number_of
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Put, commit
from zkstate.errors import Corrupt
from zkstate.record.node import Node

_MINTED = "ark-"

_BUMPS = 1_000
"""Unconditional writes of the batch counter in one transaction."""


def last(session: Session, name: str) -> int:
    """The last number that the counter assigned; 0 if it assigned none."""
    return Node(paths.counter(name), int).read(session) or 0


def readable(session: Session, name: str) -> int | None:
    """Like `last`; None if the counter is damaged."""
    try:
        return last(session, name)
    except Corrupt:
        return None


def highest_job(session: Session) -> int:
    """The highest number of the jobs in the record; 0 if there is none."""
    return max(map(number_of, session.children(paths.JOBS)), default=0)


def last_batch(session: Session) -> int:
    """The last batch number, which is the version of the counter's node."""
    stat = session.exists(paths.counter("batch"))
    return stat.version if stat else 0


def raise_to(session: Session, name: str, number: int) -> None:
    """Raise the counter to at least `number`; a damaged counter is set to `number`."""
    counter = Node(paths.counter(name), int, damaged=lambda _: -1)
    session.ensure_node(counter.path, codec.encode(0))
    counter.change(session, lambda last: max(last, number))


def raise_batches(session: Session, by: int, *, above: int = 0) -> None:
    """Raise the batch counter to `by` above the last number, or above `above` if that is higher.

    The counter is the version of its node, so the node is written that often.
    """
    path = paths.counter("batch")
    session.ensure_node(path)
    last = last_batch(session)
    left = max(last, above) + by - last
    while left > 0:
        puts = [Put(path, b"")] * min(left, _BUMPS)
        commit(session, puts)
        left -= len(puts)


def minted(naan: str, shoulder: str) -> str:
    """The name of the ARK counter of a shoulder."""
    return f"{_MINTED}{naan}_{shoulder}"


def shoulders(session: Session) -> frozenset[tuple[str, str]]:
    """(NAAN, shoulder) of the ARK counters in the record."""
    names = (unquote(name) for name in session.children("/ids"))
    parts = (name.removeprefix(_MINTED).partition("_") for name in names if name.startswith(_MINTED))
    return frozenset((naan, shoulder) for naan, _, shoulder in parts)
