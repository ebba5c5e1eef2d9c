"""The events from which Flower shows each task."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from celery.events.state import State
from celery.states import FAILURE, RETRY, STARTED, SUCCESS

from operations.site import Site
from operations.verbs.verbs import act
from pipeline.records import HistoryEntry, SubmissionType
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, Event, JobState
from tasks.broker import configured
from tests.e2e.collection import submit
from tests.servers.http_source import HttpSource
from tests.support.clocks import follow
from tests.support.fleet import Fleet, batch_ended, job_reaches, quiet, wait_for_split
from tests.support.operators import ANN
from tests.support.polling import eventually
from zkstate.connection.session import Session
from zkstate.record import batches, jobs


class Watched:
    """What Flower knows of the tasks."""

    def __init__(self) -> None:
        self.state: Any = State()  # its stubs lack the tasks
        self._changed = threading.Condition()

    def add(self, event: dict[str, object]) -> None:
        with self._changed:
            self.state.event(event)
            self._changed.notify_all()

    def of(self, name: str) -> list[Any]:
        """The tasks of a job or a batch by their ids, in the order in which they began."""
        tasks = self.state.tasks.items()
        own = [task for uuid, task in tasks if uuid.startswith(f"{name}-") and task.name != "callback.failed"]
        return sorted(own, key=lambda task: int(task.uuid.split("-")[1]))

    def await_states(self, name: str, *expected: tuple[str, str], timeout: float = 30) -> None:
        """Until the tasks of a job or a batch are these: names with what Celery says of them."""

        def seen() -> list[tuple[str, str]]:
            return [(task.name, task.state) for task in self.of(name)]

        with self._changed:
            self._changed.wait_for(lambda: seen() == list(expected), timeout)
            assert seen() == list(expected)

    def await_end(self, uuid: str, timeout: float = 60) -> Any:
        """The task, once it is said how it ended."""
        with self._changed:
            ends = (SUCCESS, FAILURE, RETRY)
            assert self._changed.wait_for(lambda: self.state.tasks[uuid].state in ends, timeout)
            return self.state.tasks[uuid]


@contextmanager
def watched(settings: Settings) -> Iterator[Watched]:
    """The events of this test's workers, received as Flower does."""
    found = Watched()
    with configured(settings) as app, app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": found.add})
        thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False})
        thread.start()
        try:
            yield found
        finally:
            receiver.should_stop = True
            thread.join()


def enable_events(settings: Settings, workers: int) -> None:
    """As Flower does while it runs."""
    with configured(settings) as app:

        def all_answer() -> bool:  # a worker that is ready may not listen to remote control yet
            answers = app.control.broadcast("enable_events", reply=True, timeout=3, limit=workers)
            return len(answers or ()) == workers

        eventually(all_answer)


def deposited(session: Session, settings: Settings, url: str) -> tuple[str, str]:
    """A deposit of one file: its batch, and its job."""
    bid = submit(session, settings, url, SubmissionType.FILE)
    wait_for_split(session, bid)
    (jid,) = batches.all_jobs(session, bid)
    return bid, jid


def succeeded(*tasks: str) -> list[tuple[str, str]]:
    return [(task, SUCCESS) for task in tasks]


BEFORE_THE_DOWNLOAD = ("job.pending", "job.estimating", "job.provisioning")
AFTER_IT = ("job.processing", "job.recording", "job.notify")


@pytest.mark.parametrize("queues", [("",), ("download", "control,split,io,process")], ids=["carried", "sent"])
def test_every_state_of_a_job_is_a_task_with_the_times_of_its_history(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, queues: tuple[str, ...]
) -> None:
    with watched(settings) as flower:
        for number, served in enumerate(queues):
            fleet.worker(f"worker{number}", queues=served)
        enable_events(settings, workers=len(queues))
        bid = submit(session, settings, source.put("/a.txt", b"a"), SubmissionType.FILE)
        assert batch_ended(session, bid).status.status is BatchState.COMPLETED
        quiet(session)

        (jid,) = batches.all_jobs(session, bid)
        names = (*BEFORE_THE_DOWNLOAD, "job.downloading", *AFTER_IT)
        flower.await_states(jid, *succeeded(*names))
        flower.await_states(bid, *succeeded("batch.split", "batch.report"))
        job, tasks = jobs.load(session, jid), flower.of(jid)

    assert [entry.state for entry in job.history] == [*JOB.working(), JobState.COMPLETED]
    assert [task.args for task in tasks] == [f"{jid} {bid} demo {entry.state}" for entry in job.history[:-1]]
    entered = [entry.at.timestamp() for entry in job.history]
    assert follow([task.succeeded for task in tasks], entered[1:])
    # the first one begins when a worker has taken its message
    assert follow([task.started for task in tasks[1:]], entered[1:-1])
    assert len({task.root_id for task in tasks}) == 1
    assert [task.parent_id for task in tasks[1:]] == [task.uuid for task in tasks[:-1]]


def test_a_download_is_a_started_task_for_as_long_as_it_lasts(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    arrives = threading.Event()
    with watched(settings) as flower:
        fleet.worker()
        enable_events(settings, workers=1)
        bid, jid = deposited(session, settings, source.put("/slow.bin", b"slow" * 1000, hold=arrives))
        flower.await_states(jid, *succeeded(*BEFORE_THE_DOWNLOAD), ("job.downloading", STARTED))
        assert flower.of(jid)[-1].args == f"{jid} {bid} demo downloading"
        with configured(settings) as app:
            ((message,),) = (app.control.inspect(timeout=30, limit=1).active() or {}).values()
        assert (message["name"], message["id"]) == ("job.pending", flower.of(jid)[0].uuid)
        arrives.set()
        flower.await_states(jid, *succeeded(*BEFORE_THE_DOWNLOAD, "job.downloading", *AFTER_IT))


def said_of(history: tuple[HistoryEntry, ...]) -> list[tuple[str, str]]:
    """The tasks of a job with that history, none of which lost its worker."""
    outcomes = {None: RETRY, Event.FAIL: FAILURE}
    return [
        (JOB.task(JobState(entry.state)).name, outcomes.get(then.event, SUCCESS))
        for entry, then in pairwise(history)
        if entry.state in JOB.working() and then.by.startswith("worker")
    ]


def test_tries_failures_and_resumes_are_tasks_with_the_outcomes_of_the_history(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    with watched(settings) as flower:
        fleet.worker()
        fleet.beat()
        enable_events(settings, workers=1)
        broken = source.put("/a.txt", b"a", status=500, status_times=5, head=False)
        _, jid = deposited(session, settings, broken)
        job_reaches(session, jid, JobState.COMPLETED)
        missing, other = deposited(session, settings, source.url("/b.txt"))
        failed = job_reaches(session, other, JobState.FAILED)
        flower.await_states(other, *said_of(failed.history))
        assert flower.of(other)[-1].exception == failed.status.message
        flower.await_states(missing, *succeeded("batch.split", "batch.report"))

        source.put("/b.txt", b"b")
        act(Site(settings, session), ANN, other, Event.RESUME)
        job_reaches(session, other, JobState.COMPLETED)

        for name in (jid, other):
            flower.await_states(name, *said_of(jobs.load(session, name).history))
        assert RETRY in [task.state for task in flower.of(jid)]


def test_the_task_of_a_dead_host_fails_and_the_work_is_a_task_again_elsewhere(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    arrives = threading.Event()
    with watched(settings) as flower:
        dead = (fleet.worker("victim"), fleet.beat("beat of the victim"))
        enable_events(settings, workers=1)
        slow = source.put("/slow.bin", b"slow" * 1000, hold=arrives)
        bid = submit(session, settings, slow, SubmissionType.FILE)
        wait_for_split(session, bid)
        (jid,) = batches.all_jobs(session, bid)
        flower.await_states(jid, *succeeded(*BEFORE_THE_DOWNLOAD), ("job.downloading", STARTED))

        for process in dead:
            process.kill()  # with all that it has started
        fleet.worker("heir")
        fleet.beat()
        enable_events(settings, workers=1)
        arrives.set()
        job_reaches(session, jid, JobState.COMPLETED)

        lost = ("job.downloading", FAILURE)
        flower.await_states(
            jid, *succeeded(*BEFORE_THE_DOWNLOAD), lost, *succeeded("job.downloading", *AFTER_IT)
        )
