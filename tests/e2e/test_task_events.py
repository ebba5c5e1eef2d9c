"""The events from which Flower shows each task."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery.events.state import State

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState
from tasks.broker import configured
from tests.e2e.collection import submit
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, batch_ended, quiet
from zkstate.connection.session import Session


class Watched:
    """What Flower knows of the tasks."""

    def __init__(self) -> None:
        self._state: Any = State()  # its stubs lack the tasks
        self._changed = threading.Condition()

    def add(self, event: dict[str, object]) -> None:
        with self._changed:
            self._state.event(event)
            self._changed.notify_all()

    def await_ends(self, name: str, count: int, timeout: float = 30) -> list[str]:
        """The states of the tasks of this name once `count` have ended, or after `timeout` seconds."""

        def states() -> list[str]:
            return [task.state for task in self._state.tasks.values() if task.name == name]

        def ended() -> bool:
            return sum(state == "SUCCESS" for state in states()) >= count

        with self._changed:
            self._changed.wait_for(ended, timeout)
            return states()


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
        answers = app.control.broadcast("enable_events", reply=True, timeout=30, limit=workers)
    assert len(answers or ()) == workers


def test_every_task_of_a_job_has_succeeded_and_the_last_one_starts_no_further_task(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    with watched(settings) as flower:
        fleet.worker("downloads", queues="download")
        fleet.worker(queues="control,split,io,process")
        enable_events(settings, workers=2)
        good = submit(session, settings, source.put("/a.txt", b"a"), SubmissionType.FILE)
        assert batch_ended(session, good).status.status is BatchState.COMPLETED
        bad = submit(session, settings, source.url("/missing.txt"), SubmissionType.FILE)
        assert batch_ended(session, bad).status.status is BatchState.FAILED
        quiet(session)

        # a task goes on with the states after its own whose queues its worker serves
        assert flower.await_ends("job.pending", 2) == ["SUCCESS"] * 2
        assert flower.await_ends("job.downloading", 2) == ["SUCCESS"] * 2
        assert flower.await_ends("job.processing", 1) == ["SUCCESS"]
        assert flower.await_ends("batch.report", 2) == ["SUCCESS"] * 2
