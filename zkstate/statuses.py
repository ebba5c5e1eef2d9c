"""The statuses and locks of many jobs or batches, read at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

from pipeline.records import BatchStatus, JobStatus
from zkstate import codec, paths
from zkstate.errors import Corrupt
from zkstate.record import St
from zkstate.session import Session


@dataclass(frozen=True)
class Kind(Generic[St]):
    """Where the status and the lock of a kind of record are."""

    status: type[St]
    status_path: Callable[[str], str]
    lock_path: Callable[[str], str]


JOBS = Kind(JobStatus, paths.job_status, paths.job_lock)
BATCHES = Kind(BatchStatus, paths.batch_status, paths.batch_lock)


def read_statuses(
    session: Session, names: Sequence[str], kind: Kind[St], on_damage: Callable[[Corrupt], None]
) -> Iterator[tuple[str, St, bool, int]]:
    """Name, status, whether it is locked, and when the status was written (ms); missing ones are left out."""
    locks = session.exists_many([kind.lock_path(name) for name in names])
    nodes = session.get_many([kind.status_path(name) for name in names])
    for name, lock, node in zip(names, locks, nodes, strict=True):
        if node is None:
            continue
        try:
            status = codec.decode(kind.status, node[0], kind.status_path(name))
        except Corrupt as damage:
            on_damage(damage)
            continue
        yield name, status, lock is not None, node[1].mtime
