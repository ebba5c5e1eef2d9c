"""The deployment id of the record, and the mark by which a record that went backwards is recognised.

The deployment of a record, for commands that work without ZooKeeper too; nothing is created.
"""

import socket
from collections.abc import Callable
from datetime import UTC, datetime

from kazoo.hosts import collect_hosts

from pipeline.deployment import Deployment
from pipeline.outcome import Service
from pipeline.settings import Settings
from pipeline.states import JOB, Bucket
from zkstate import codec, paths
from zkstate.connection.session import Session, connect
from zkstate.connection.transaction import Put, Role, commit
from zkstate.errors import Contended, Unreachable
from zkstate.fleet import counters
from zkstate.queue import listings

_STORED = JOB.where(lambda facts: facts.stored)


class RecordDeployment:
    """Satisfies `pipeline.deployment.RecordStore`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def service(self) -> Service:
        return Service.RECORD

    @property
    def place(self) -> str:
        return f"{self._session.hosts}{self._session.root}"

    def read_deployment(self) -> Deployment | None:
        return read(self._session)

    def write_deployment(self, deployment: Deployment) -> None:
        self._session.ensure_node(paths.DEPLOYMENT, codec.encode(deployment))

    def last_job(self) -> int:
        self._session.ask(self._session.zk.sync_async, paths.DEPLOYMENT)
        return counters.last(self._session, "job")

    def raise_last_job(self, number: int) -> None:
        counters.raise_to(self._session, "job", number)

    def raise_mark(self, mark: int) -> None:
        if read(self._session) is not None:
            raise_mark(self._session, mark)

    def has_stored_jobs(self) -> bool:
        session = self._session
        buckets = [paths.bucket(bid, Bucket.COMPLETED) for bid in listings.all_batches(session)]
        queues = [paths.queue(state) for state in _STORED]
        return any(stat is not None and stat.numChildren for stat in session.exists_many(queues + buckets))


def read(session: Session) -> Deployment | None:
    """The deployment as ZooKeeper's leader has it; None if the record has no id."""
    dated = read_dated(session)
    return dated[0] if dated else None


def read_dated(session: Session) -> tuple[Deployment, datetime] | None:
    """As `read`, with the time of its last write: scheduled work increments its mark."""
    session.ask(session.zk.sync_async, paths.DEPLOYMENT)
    node = session.find(paths.DEPLOYMENT)
    if node is None:
        return None
    data, stat = node
    return codec.decode(Deployment, data, paths.DEPLOYMENT), datetime.fromtimestamp(stat.mtime / 1000, UTC)


def raise_mark(session: Session, mark: int) -> Deployment:
    """The deployment, whose mark is now at least `mark`; Missing if the record has no id."""
    return _change(session, lambda was: {"mark": max(mark, was.mark)})


def note_broker(session: Session, broker: str) -> None:
    """Record the prefix in Redis that this deployment has claimed; Missing if the record has no id."""
    _change(session, lambda _: {"broker": broker})


def _change(session: Session, changes: Callable[[Deployment], dict[str, object]]) -> Deployment:
    while True:
        data, stat = session.get(paths.DEPLOYMENT)
        was = codec.decode(Deployment, data, paths.DEPLOYMENT)
        following = was.model_copy(update=changes(was))
        if following == was:
            return was
        put = Put(paths.DEPLOYMENT, codec.encode(following), stat.version, Role.SHARED)
        try:
            commit(session, (put,))
        except Contended:
            continue
        return following


TIMEOUT = 2.0
"""Seconds to wait for ZooKeeper, for one server to accept a connection and for the session to be open."""


def read_if_reachable(settings: Settings) -> Deployment | None:
    """None if the record has no id; Unreachable if ZooKeeper does not answer soon."""
    hosts, _ = collect_hosts(settings.zk_hosts)
    if not any(_accepts(host, port) for host, port in hosts):  # kazoo would try until the time is up
        raise Unreachable(f"ZooKeeper at {settings.zk_hosts} does not answer")
    with connect(settings, TIMEOUT, create=False) as session:
        return read(session)


def _accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), TIMEOUT).close()
    except OSError:
        return False
    return True
