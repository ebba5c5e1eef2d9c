"""The profile that a batch started with, or that somebody gave it since; for all of its jobs."""

from collections.abc import Callable
from typing import TypeVar

from pipeline.profiles.snapshot import ProfileSnapshot
from pipeline.records import Batch
from zkstate import codec, paths
from zkstate.connection import remembered
from zkstate.connection.session import Session
from zkstate.connection.transaction import Check, Create, Put, Role, commit

T = TypeVar("T")


def snapshot(session: Session, bid: str) -> ProfileSnapshot | None:
    """None if the batch has not started, or 0.1.0 started it."""
    path = paths.profile_snapshot(bid)
    node = session.find(path)
    return codec.decode(ProfileSnapshot, node[0], path) if node else None


def of_jobs(session: Session, bid: str, decode: Callable[[ProfileSnapshot], T]) -> T | None:
    """The snapshot as `decode` returns it; read again once the batch has another profile."""
    path = paths.profile_snapshot(bid)
    known = remembered.read(session, path, lambda data: decode(codec.decode(ProfileSnapshot, data, path)))
    return known.value


def renew(session: Session, batch: Batch, profile: ProfileSnapshot) -> None:
    """Give the batch another profile to continue with, which keeps who renewed it before.

    Stale if the batch moved meanwhile, or somebody else renewed its profile.
    """
    path = paths.profile_snapshot(batch.bid)
    node = session.find(path)
    if node is None:
        put: Create | Put = Create(path, codec.encode(profile), role=Role.FENCE)
    else:
        data = codec.encode(profile.after(codec.decode(ProfileSnapshot, node[0], path)))
        put = Put(path, data, node[1].version, role=Role.FENCE)
    try:
        commit(session, [Check(paths.batch_status(batch.bid), batch.version), put])
    finally:
        remembered.forget(session, path)
