"""The packets of a sweep follow the pages that it reads, and not the length of a queue."""

import re
import socket
from collections.abc import Callable, Iterator

import pytest

from entrypoints.stack.child import HOST
from pipeline.states import JOB, JobState
from tests.servers.zookeeper import Server
from tests.support import planting
from zkstate import paths
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session
from zkstate.fleet.scheduled import FRONT, PAGE, Sweep
from zkstate.queue import recovery

READS_OF_A_JOB = 1
"""Its status; the lock only of a job that may have lost its worker or its message."""

FIXED = 40
"""The lists of the queues, the lock of the sweep, its record, and pings."""


def packets(server: Server) -> int:
    """Requests that the server has received."""
    with socket.create_connection((HOST, server.port), timeout=5) as connection:
        connection.sendall(b"mntr")
        answer = connection.makefile("rb").read().decode()
    found = re.search(r"zk_packets_received\s+(\d+)", answer)
    assert found is not None
    return int(found[1])


def packets_of_a_sweep(session: Session, server: Server) -> int:
    before = packets(server)
    with single_flight(session, "sweep") as clock:
        assert clock is not None
        current = Sweep(session, clock)
        assert not recovery.sweep_jobs(session, frozenset(), current.clock, 3, current.page).tickets
        current.save()
    return packets(server) - before


@pytest.fixture
def lengthen(session: Session) -> Iterator[Callable[[int], None]]:
    """A function that lengthens the line of pending jobs; the record is as before at the end."""
    job = planting.one_job(session)
    status = session.get(paths.job_status(job.jid))[0]
    planted: list[str] = []

    def to(length: int) -> None:
        for start in range(len(planted), length, 200):
            transaction = session.zk.transaction()
            for number in range(start, start + 200):
                jid = f"jid{9_000_000_000 + number}"
                planted.append(jid)
                transaction.create(paths.JOBS + f"/{jid}")
                transaction.create(paths.job_status(jid), status)
                transaction.create(paths.queue_entry(JobState.PENDING, 5, jid))
            transaction.commit()

    yield to
    for start in range(0, len(planted), 200):
        transaction = session.zk.transaction()
        for jid in planted[start : start + 200]:
            for path in (
                paths.queue_entry(JobState.PENDING, 5, jid),
                paths.job_status(jid),
                f"{paths.JOBS}/{jid}",
            ):
                transaction.delete(path)
        transaction.commit()


def test_the_packets_of_a_sweep_follow_the_page_and_not_the_backlog(
    session: Session, zookeeper: Server, lengthen: Callable[[int], None]
) -> None:
    most = READS_OF_A_JOB * (FRONT + PAGE) + FIXED + len(JOB.working())
    cost = {}
    for length in (400, 1_200, 5_000):
        lengthen(length)
        cost[length] = packets_of_a_sweep(session, zookeeper)

    assert cost[400] >= READS_OF_A_JOB * 400
    assert max(cost.values()) <= most
    assert cost[5_000] - cost[1_200] < FIXED
