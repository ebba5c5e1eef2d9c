"""The answers of workers: nobody who is there is called missing, and nobody who is not is waited for."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from subprocess import Popen
from threading import Event, Thread
from typing import Any

import pytest

from operations.fleet import fleet
from operations.fleet.fleet import Worker
from operations.site import Site
from pipeline.errors import UsageRefused
from pipeline.principal import Role
from pipeline.settings import Settings
from tasks import broker
from tasks.broker import configured
from tests.servers.proxy import Proxy
from tests.support import cli
from tests.support.operators import ANN
from tests.support.web import Web, serving
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.record.journal import JournalAction

WAIT = 20.0


QUICK = 4.0
"""Seconds within which an answer is quick on a busy machine; nobody's answer is waited for longer than 5."""


@contextmanager
def answering(
    settings: Settings,
    name: str,
    after: float = 0.0,
    queues: object = ({"name": "process"},),
    tasks: Callable[[], object] = list,
) -> Iterator[None]:
    """A node that answers like a worker, `after` seconds; `tasks` returns those that it works on."""
    app, ready, ended = configured(settings), Event(), Event()

    def answer(value: object) -> object:
        time.sleep(after)
        return value

    def run() -> None:
        with app.connection_for_read() as connection:
            control: Any = app.control
            node = control.mailbox.Node(name, channel=connection.default_channel)
            node.handlers |= {
                "active_queues": lambda state, **_: answer(queues),
                "active": lambda state, **_: answer(tasks()),
                "stats": lambda state, **_: answer({"pool": {"max-concurrency": 2}}),
            }
            with node.listen():
                while not ended.is_set():
                    try:
                        connection.drain_events(timeout=0.1)
                    except TimeoutError:
                        ready.set()  # the first call has subscribed

    thread = Thread(target=run)
    thread.start()
    assert ready.wait(WAIT)
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_worker_that_answers_late_is_waited_for(settings: Settings) -> None:
    with answering(settings, "worker1@here"), answering(settings, "worker2@here", after=0.7):
        began = time.monotonic()
        answers = fleet.workers(settings)

    assert [worker.name for worker in answers] == ["worker1@here", "worker2@here"]
    assert answers[0] == Worker(name="worker1@here", queues=("process",), processes=2)
    assert time.monotonic() - began > 1.0


@pytest.mark.parametrize("queues", [7, {"name": "io"}, [{"name": 7}], [{}], None])
def test_what_no_worker_answers_is_no_answer(settings: Settings, queues: object) -> None:
    with answering(settings, "worker1@here"), answering(settings, "stranger@here", queues=queues):
        answers = fleet.workers(settings)

    assert [worker.name for worker in answers] == ["worker1@here"]


def test_nobody_is_waited_for_once_all_workers_have_answered(settings: Settings) -> None:
    with answering(settings, "worker1@here"):
        began = time.monotonic()
        answers = fleet.workers(settings)
        seconds = time.monotonic() - began

    assert [worker.name for worker in answers] == ["worker1@here"]
    assert seconds < QUICK


def test_without_a_worker_nobody_is_waited_for(settings: Settings) -> None:
    fleet.taking(settings)  # imports and connections take a moment
    began = time.monotonic()

    assert fleet.workers(settings) == ()
    assert time.monotonic() - began < QUICK


def test_a_worker_that_does_not_follow_its_drain_is_named_with_what_it_still_consumes(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "FOLLOW_WAIT", 0.5)
    with answering(settings, "worker1@here"):
        done = fleet.drain(Site(settings, session), ANN, "worker1@here")
        again = fleet.drain(Site(settings, session), ANN, "worker1@here")

    assert (done.queues, done.changed, done.followed) == (("process",), True, False)
    assert (again.drain, again.changed) == (done.drain, False)
    assert [entry.action for entry in holds.actions(session)] == [JournalAction.DRAIN]


def test_a_mistyped_worker_is_refused_once_all_workers_have_answered(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "ONE_WAIT", 3 * QUICK)
    with answering(settings, "worker1@here"):
        began = time.monotonic()
        with pytest.raises(UsageRefused, match=r"'worker1@hers' answers; running: worker1@here$"):
            fleet.drain(Site(settings, session), ANN, "worker1@hers")
        seconds = time.monotonic() - began

    assert seconds < 2 * QUICK
    assert holds.drained(session) == {}


def test_drains_at_once_are_each_judged_however_long_a_worker_is_waited_for(settings: Settings) -> None:
    names = ("worker2@here", "worker3@here")
    with answering(settings, "worker1@here"), serving(settings) as web, ThreadPoolExecutor(2) as at_once:
        caller = web.caller(Role.OPERATOR, name="restarts-the-fleet")
        answers = list(at_once.map(lambda name: caller.post(f"/v1/workers/{name}/drain", {}), names))

    assert [answer.json()["detail"] for answer in answers] == [
        f"no worker called '{name}' answers; running: worker1@here" for name in names
    ]


def test_a_drain_is_answered_over_the_api_however_slow_its_worker_is(settings: Settings) -> None:
    with answering(settings, "worker1@here", after=6.0), serving(settings) as web:
        caller = web.caller(Role.OPERATOR, name="restarts-the-fleet")
        done = caller.post("/v1/workers/worker1@here/drain", {}, timeout=120).json()

    assert (done["worker"], done["changed"], done["followed"]) == ("worker1@here", True, False)


@dataclass
class Tasks:
    """The tasks of a worker that may end."""

    running: tuple[object, ...] = ({"name": "job.downloading"},)
    asked: Event = field(default_factory=Event)

    def __call__(self) -> object:
        self.asked.set()
        return self.running


@contextmanager
def draining(alone: Settings, web: Web, wait: str, through: str = "") -> Iterator[Popen[str]]:
    operator = {"ARKLINE_TOKEN": web.caller(Role.OPERATOR).token, "ARKLINE_URL": through or web.url}
    with cli.start(alone, "drain", "worker1@here", "--wait", wait, **operator) as process:
        yield process


def test_a_drain_waits_for_a_site_that_is_away_for_a_moment(settings: Settings, alone: Settings) -> None:
    tasks = Tasks()
    with (
        answering(settings, "worker1@here", queues=(), tasks=tasks),
        serving(settings) as web,
        Proxy(int(web.url.rpartition(":")[2])) as proxy,
        draining(alone, web, "5m", f"http://{proxy.hosts}") as process,
    ):
        assert tasks.asked.wait(WAIT)
        proxy.refuse()
        assert process.stderr is not None
        assert "does not answer" in process.stderr.readline()
        tasks.running = ()
        proxy.accept()
        _, err = process.communicate(timeout=60)

    assert process.returncode == 0, err
    assert "the site answers again" in err


def test_a_drain_that_waited_in_vain_says_what_the_worker_does(settings: Settings, alone: Settings) -> None:
    tasks = Tasks()
    worker = answering(settings, "worker1@here", queues=(), tasks=tasks)
    with worker, serving(settings) as web, draining(alone, web, "1s") as process:
        _, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert err.endswith("worker1@here still has a task.\n")


def test_a_drain_says_that_its_worker_answers_no_longer(settings: Settings, alone: Settings) -> None:
    tasks = Tasks()
    worker = ExitStack()
    worker.enter_context(answering(settings, "worker1@here", queues=(), tasks=tasks))
    with worker, serving(settings) as web, draining(alone, web, "10s") as process:
        assert tasks.asked.wait(WAIT)
        worker.close()
        _, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert err.endswith("worker1@here no longer answers.\n")


def test_a_worker_that_does_not_say_what_it_does_is_not_called_idle(settings: Settings) -> None:
    with answering(settings, "worker1@here", tasks=lambda: "rubbish"):
        (worker,) = fleet.workers(settings)

    assert (worker.busy, worker.says_busy) == (0, False)


def test_the_last_free_connection_is_enough_to_ask_the_workers(settings: Settings) -> None:
    """Callers that each hold one and wait for another would wait for each other for ever."""
    app = broker.publisher(settings)
    with ExitStack() as taken, ThreadPoolExecutor(1) as threads:
        for _ in range(app.conf.broker_pool_limit - 1):
            taken.enter_context(app.pool.acquire(block=True))
        asked = threads.submit(fleet.taking, settings)
        try:
            assert asked.result(WAIT) == {}
        finally:
            taken.close()  # so that the thread ends
