"""Another record may answer behind a new connection, with a status that happens to have the same version."""

import pytest

from pipeline.records import Job
from pipeline.states import JobState
from tests.integration.test_ambiguity import without_answer
from tests.servers.proxy import Proxy
from tests.support import planting
from tests.support.waits import HOST
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.errors import Stale
from zkstate.record import jobs, record


def reconnect(session: Session, proxy: Proxy) -> None:
    before = session.connections
    proxy.cut()
    while session.connections == before:
        session.exists("/")


def replace(session: Session, job: Job, **changes: object) -> None:
    """As a restore does: the status node has another content, and as many versions as before."""
    path = paths.job_status(job.jid)
    status = job.status.model_copy(update={"op": "of the other record", **changes})
    session.zk.delete(path)
    session.zk.create(path, b"")
    for _ in range(job.version):
        session.zk.set(path, codec.encode(status))


def waiting_job(session: Session) -> Job:
    """A job that was read while it did not wait; in the record that answers now it is listed as waiting."""
    held = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING))
    return record.hand_back(session, held, "test")


def test_nothing_that_was_read_before_a_reconnection_is_written_over_another_record(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    job = waiting_job(session)
    read = jobs.load(shaky, job.jid)
    reconnect(shaky, zookeeper_proxy)
    replace(session, job, waits_for=HOST.model_copy(update={"listed": True}))
    session.zk.create(paths.waiting(job.jid))

    with pytest.raises(Stale, match="another record answers"):
        record.redispatch(shaky, read, lost=False)

    assert jobs.load(session, job.jid).status.op == "of the other record"


def test_a_write_whose_answer_was_lost_is_not_repeated_over_another_record(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    job = waiting_job(session)
    read = jobs.load(shaky, job.jid)

    def act() -> None:
        with pytest.raises(Stale, match="another record answers"):
            record.redispatch(shaky, read, lost=False)

    without_answer(
        zookeeper_proxy, paths.job_status(job.jid).encode(), act, meanwhile=lambda: replace(session, job)
    )

    assert jobs.load(session, job.jid).status.op == "of the other record"


def test_a_session_that_reconnected_writes_what_nobody_changed(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    job = waiting_job(session)
    read = jobs.load(shaky, job.jid)
    reconnect(shaky, zookeeper_proxy)

    ticket = record.redispatch(shaky, read, lost=False)

    assert jobs.load(session, job.jid).status.epoch == ticket.epoch
