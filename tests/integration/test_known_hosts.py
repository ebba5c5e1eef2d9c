import threading
from datetime import UTC, datetime

from operations.hosts import known_hosts
from zkstate import host_back_off, host_connections
from zkstate.session import Session


def test_hosts_that_asked_to_wait_come_first_with_the_moment_of_the_next_request(session: Session) -> None:
    connection = host_connections.acquire(session, "busy.example", 2, "jid0000000001", threading.Event())
    assert connection is not None
    host_back_off.begin(session, "slow.example:8080", 60)

    slow, busy = known_hosts(session)

    assert slow.host == "slow.example:8080"
    assert slow.waits_until is not None
    assert 50 < (slow.waits_until - datetime.now(UTC)).total_seconds() <= 61
    assert (busy.host, busy.waits_until, busy.connections) == ("busy.example", None, 1)
    host_connections.release(connection)
