"""A busy host of content leaves the other one alone; the checker sees deposits of the other stand still."""

from datetime import UTC, datetime

import pytest
import requests

from pipeline.records import HistoryEntry, Job
from pipeline.states import JobState
from tests.support import records
from tools.chaos.fakes import FAR, run_fakes
from tools.chaos.host_checker import Outage, check_other_hosts

OUT = Outage(100.0, 190.0, of_one_host=True, longest=110.0)
NEAR, DISTANT = "http://127.0.0.1:1/d1-0.checkm", f"http://127.0.0.2:1{FAR}1-0.checkm"


def waiting(number: int, url: str = NEAR, downloaded: float | None = None) -> Job:
    """A job that was created before the outage."""
    entries = [(50.0, JobState.PENDING)] + ([(downloaded, JobState.PROCESSING)] if downloaded else [])
    history = tuple(HistoryEntry(state=state, at=datetime.fromtimestamp(at, UTC)) for at, state in entries)
    return records.a_job(number, payload_url=url).model_copy(update={"history": history})


def test_the_checker_sees_that_the_jobs_of_another_host_stood_still() -> None:
    jobs = [waiting(number, downloaded=191.0) for number in (1, 2, 3)]

    (problem,) = check_other_hosts([OUT], jobs)

    assert problem.about == records.jid(1)


@pytest.mark.parametrize(
    "jobs",
    [
        [waiting(1, downloaded=150.0), waiting(2), waiting(3)],
        [waiting(1), waiting(2)],
        [waiting(number, DISTANT) for number in (1, 2, 3, 4)],
    ],
    ids=["one was downloaded", "too few to tell", "all are of the host that is out"],
)
def test_the_checker_says_nothing_of_other_cases(jobs: list[Job]) -> None:
    assert list(check_other_hosts([OUT], jobs)) == []


def test_an_outage_beside_another_long_fault_proves_nothing() -> None:
    jobs = [waiting(number) for number in (1, 2, 3)]
    disk = Outage(180.0, 260.0, of_one_host=False, longest=110.0)
    kill = Outage(120.0, 120.0, of_one_host=False, longest=0.0)

    assert list(check_other_hosts([OUT, disk], jobs)) == []
    assert len(list(check_other_hosts([OUT, kill], jobs))) == 1


def test_one_of_two_hosts_is_busy_and_afterwards_serves_what_was_changed_meanwhile() -> None:
    with run_fakes() as fakes:
        near, distant = (fakes.source.put(path, b"old") for path in ("/d1.bin", f"{FAR}1.bin"))

        fakes.source.busy(503, "60", far=True)
        fakes.source.change(f"{FAR}1.bin", body=b"new")
        asked = requests.get(distant, timeout=30)
        other = requests.get(near, timeout=30)
        fakes.source.calm(far=True)

        assert (asked.status_code, asked.headers["Retry-After"]) == (503, "60")
        assert (other.status_code, other.content) == (200, b"old")
        assert requests.get(distant, timeout=30).content == b"new"
