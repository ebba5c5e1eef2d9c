import threading
from datetime import UTC, datetime

from operations.fleet.hosts import known_hosts
from operations.site import Site
from pipeline.outcome import WaitKind, WaitsFor
from pipeline.settings import Settings
from pipeline.states import JobState
from tests.support import cli as arkline
from tests.support import planting
from tests.support.operators import ANN
from zkstate.connection.session import Session
from zkstate.fleet import hosts
from zkstate.record import record


def test_hosts_that_asked_to_wait_come_first_with_the_moment_of_the_next_request(
    session: Session, site: Site
) -> None:
    connection = hosts.acquire_connection(session, "busy.example", 2, "jid0000000001", threading.Event())
    assert connection is not None
    hosts.begin_pause(session, "slow.example:8080", 60, "503 Service Unavailable, Retry-After 60 s")

    slow, busy = known_hosts(site, ANN)

    assert slow.host == "slow.example:8080"
    assert slow.waits_until is not None
    assert (slow.cause, slow.jobs) == ("503 Service Unavailable, Retry-After 60 s", None)
    assert 50 < (slow.waits_until - datetime.now(UTC)).total_seconds() <= 61
    assert (busy.host, busy.waits_until, busy.connections) == ("busy.example", None, 1)
    connection.release()


def test_the_status_names_the_port_the_answer_and_the_jobs_of_a_host_that_asked_to_wait(
    session: Session, settings: Settings
) -> None:
    host, answer = "slow.example:8080", "503 Service Unavailable, Retry-After 900 s"
    hosts.begin_pause(session, host, 900, answer)
    for name in (host, host, "other.example:80"):
        job = planting.acquire(
            session, planting.job_in(session, JobState.DOWNLOADING, payload_url=f"http://{name}/a")
        )
        last = f"{name} requested a pause: no request is sent to it for 899 more seconds"
        wait = WaitsFor(kind=WaitKind.HOST, name=name)
        record.hand_back(session, job, "worker", message=last, delay=900, waits_for=wait)

    shown = arkline.run(settings, "status").out
    explained = arkline.run(settings, "why", "jid0000000001").out

    (line,) = [line for line in shown.splitlines() if line.startswith("source ")]
    assert f"{host} asked clients to slow down ({answer})" in shown
    assert "asked again in 15 minutes" in line or "in 14 minutes" in shown
    assert "2 jobs and batches wait for it" in " ".join(shown.split())
    assert f"{host} asked clients to slow down ({answer}); the next request is sent in" in explained
