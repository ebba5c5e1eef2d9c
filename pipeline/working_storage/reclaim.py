"""Which failed jobs give up room for a job that waits: as few as needed, the oldest failure first.

Rule: reservations go before content, so that what was fetched is kept while there is room; nothing is given
up for a job that would not fit even then.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Holder:
    """A failed job: the bytes that are outstanding of its reservation, and those that its content takes."""

    jid: str
    outstanding: int
    content: int


@dataclass(frozen=True)
class Reclaim:
    """The jobs that give up their reservations, and those whose content is removed as well."""

    reservations: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()


def plan(short: int, holders: Sequence[Holder]) -> Reclaim | None:
    """What frees `short` bytes; None if the failed jobs hold less. `holders`: the oldest failure first."""
    reservations: list[str] = []
    contents: list[str] = []
    for holder in holders:
        if short > 0 and holder.outstanding:
            reservations.append(holder.jid)
            short -= holder.outstanding
    for holder in holders:
        if short > 0 and holder.content:
            contents.append(holder.jid)
            short -= holder.content
    return None if short > 0 else Reclaim(tuple(reservations), tuple(contents))
