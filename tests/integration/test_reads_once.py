"""A verb reads each node of the record once; a feed afterwards reads the jobs that are pending then."""

from collections import Counter
from typing import Any

import pytest

from operations.deposits.submission import submit
from operations.site import Site
from operations.verbs.verbs import act
from pipeline.states import Event, JobState
from tests.support import planting
from tests.support.operators import ANN
from tests.support.records import a_submission
from zkstate.connection.session import Session


@pytest.fixture
def read(session: Session, monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """What ZooKeeper is asked for: kind of request and path."""
    asked: Counter[tuple[str, str]] = Counter()

    def counted(name: str, request: Any) -> Any:
        def call(path: str, *arguments: Any, **options: Any) -> Any:
            asked[name, path] += 1
            return request(path, *arguments, **options)

        return call

    for name in ("get_async", "exists_async", "get_children_async"):
        monkeypatch.setattr(session.zk, name, counted(name, getattr(session.zk, name)))
    return asked


@pytest.mark.parametrize("last", [JobState.ESTIMATING, JobState.DOWNLOADING])
def test_a_resume_reads_each_node_once(
    session: Session, site: Site, read: Counter[tuple[str, str]], last: JobState
) -> None:
    job = planting.job_in(session, JobState.FAILED, last)
    read.clear()

    act(site, ANN, job.jid, Event.RESUME)

    assert read
    assert [asked for asked, times in read.items() if times > 1] == []


def test_a_submission_reads_each_node_once(
    session: Session, site: Site, read: Counter[tuple[str, str]]
) -> None:
    submit(site, ANN, a_submission(idempotency_key="once"))

    assert read
    assert [asked for asked, times in read.items() if times > 1] == []
