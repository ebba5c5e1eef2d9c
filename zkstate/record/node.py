"""One node of many jobs or batches, requested at once; a node that cannot be read spoils no other."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Generic, TypeVar

from kazoo.protocol.states import ZnodeStat

from pipeline.records import BatchStatus, JobStatus
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Missing
from zkstate.record.record import St

T = TypeVar("T")

_log = logging.getLogger("arkline.record")


def log_damage(damage: Corrupt | Missing) -> None:
    _log.error("%s", damage)


def ignore_damage(_: Corrupt) -> None:
    """The audit reports it."""


def read_each(
    session: Session,
    names: Sequence[str],
    path: Callable[[str], str],
    decode: Callable[[bytes, str], T],
    on_damage: Callable[[Corrupt], None] = log_damage,
) -> Iterator[tuple[str, T, ZnodeStat]]:
    """Name, content and stat of the nodes at `path(name)`; missing and unreadable nodes are left out."""
    places = [path(name) for name in names]
    for name, place, node in zip(names, places, session.get_many(places), strict=True):
        if node is None:
            continue
        try:
            content = decode(node[0], place)
        except Corrupt as damage:
            on_damage(damage)
            continue
        yield name, content, node[1]


@dataclass(frozen=True)
class Kind(Generic[St]):
    """Where the status and the lock of a kind of record are."""

    status: type[St]
    status_path: Callable[[str], str]
    lock_path: Callable[[str], str]


JOBS = Kind(JobStatus, paths.job_status, paths.job_lock)
BATCHES = Kind(BatchStatus, paths.batch_status, paths.batch_lock)


def read_statuses(
    session: Session,
    names: Sequence[str],
    kind: Kind[St],
    on_damage: Callable[[Corrupt], None] = log_damage,
    written_ms: Callable[[ZnodeStat], int] = attrgetter("mtime"),
) -> Iterator[tuple[str, St, bool, int]]:
    """Name, status, whether it is locked, and when the status was written (ms)."""
    locks = session.exists_many([kind.lock_path(name) for name in names])
    locked = {name for name, lock in zip(names, locks, strict=True) if lock is not None}
    decode = partial(codec.decode, kind.status)
    for name, status, stat in read_each(session, names, kind.status_path, decode, on_damage):
        yield name, status, name in locked, written_ms(stat)
