"""The context of the tasks of one worker: settings, the Celery application, a session and the clients.

A kazoo client is dead after a fork, and a lock must not outlive the process that holds it: the session
belongs to the process id that opened it, and is opened on first use, never in a parent process.
"""

import mmap
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar

from celery import Celery, Task

from pipeline import plugins
from pipeline.attempt import UNATTENDED, Attempt
from pipeline.http.service import FIRST_PAUSE
from pipeline.notify.callback import HttpCallback
from pipeline.outcome import ServiceDown, StepFailed
from pipeline.profiles.profile import Profile
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import Queue
from pipeline.steps.context import Clients, open_clients
from tasks.events import Message, TaskEvents
from tasks.interruption import Interruption
from tasks.redis_keys import Counted, Outcome, ProgressReports, count
from tasks.stores import ConfirmedStores
from zkstate.connection.session import Session, connect

T = TypeVar("T")

_QUEUES = tuple(Queue)

HOST_RETRY = 60.0
"""Seconds between two tries of a service that works for other hosts but not for this one."""


_host = cache(socket.gethostname)


class Stop(IntEnum):
    """Which attempts of a stopping worker hand their records back."""

    NONE = 0
    ONWARD = 1
    """None, but no process continues with the next state of its job."""
    FETCHES = 2
    """Those that wait for source hosts: what has arrived is kept for the next attempt."""
    ALL = 3


class CountedCallback(HttpCallback):
    def __init__(self, settings: Settings, pause: float = FIRST_PAUSE) -> None:
        super().__init__(settings, pause)
        self._counted = settings

    def deliver(self, job: Job, profile: Profile, version: int | None, attempt: Attempt = UNATTENDED) -> None:
        try:
            super().deliver(job, profile, version, attempt)
        except StepFailed:
            count(self._counted, Counted.CALLBACKS, Outcome.FAILED)
            raise
        if profile.callback_url is not None:
            count(self._counted, Counted.CALLBACKS, Outcome.DELIVERED)


class WorkerContext:
    """Created before a worker forks; the session and the clients are opened once in each process."""

    def __init__(self, settings: Settings, app: Celery) -> None:
        self.settings = settings
        self.app = app
        self.traced = plugins.choosing(plugins.EXPORTER) is not None
        """Whether an exporter sends traces."""
        self._mutex = threading.Lock()
        self._open: dict[Callable[[Settings], Any], Any] = {}
        self._pid = 0
        self._tried: dict[str, float] = {}
        self._stop = mmap.mmap(-1, 1)
        """One byte of memory shared with the processes forked from this one."""
        self._served = mmap.mmap(-1, len(Queue))
        """The same, with one byte for each queue: 1 if the worker consumes its messages."""
        self._listened = mmap.mmap(-1, 1)
        """The same: 1 while anybody listens to Celery's task events."""
        self.worker = ""
        """The name under which Celery knows the worker of this process."""
        self.carried: Any = None
        """The attempt that this process has begun, and whose task comes next."""
        self.following: Message | None = None
        """The message of that task."""

    @property
    def name(self) -> str:
        return f"worker {_host()}:{os.getpid()}"

    def note_name(self, sender: str, **_: object) -> None:
        """`sender`: the name of the worker, as Celery's signals have it."""
        self.worker = sender

    def ask_to_stop(self, stop: Stop = Stop.ALL) -> None:
        """Ask the running attempts of this process and of its children to hand their jobs back."""
        self._stop[0] = max(stop, self._stop[0])

    def stopping(self, *, fetches: bool = False) -> bool:
        """True if an attempt has to end; `fetches`: the attempt sends requests to source hosts."""
        return self._stop[0] >= (Stop.FETCHES if fetches else Stop.ALL)

    def begins_next(self, queue: Queue) -> bool:
        """True if a process, whose worker consumes `queue`, may continue with its work without a message."""
        return self._stop[0] == Stop.NONE and self._served[_QUEUES.index(queue)] == 1

    def serve(self, queue: str, served: bool = True) -> None:
        """Note whether this worker consumes the messages of a queue."""
        self._served[_QUEUES.index(Queue(queue))] = served

    def session(self) -> Session:
        """A session whose record is confirmed to be this deployment's; ServiceDown if it is not."""
        session = self._opened(connect)
        if session.standing() is None:
            # a client that has seen later changes than its server has is refused for ever: a new one is not
            self.drop_session()
            session = self._opened(connect)
        try:
            self.stores().confirm(session)
        except ServiceDown:
            self.drop_session()
            raise
        return session

    def stores(self) -> ConfirmedStores:
        return self._opened(ConfirmedStores)

    def clients(self) -> Clients:
        return self._opened(self._open_clients)

    def _open_clients(self, settings: Settings) -> Clients:
        clients = open_clients(settings, lambda service: self.stores().expected(service))
        return replace(clients, callback=CountedCallback(settings))

    def progress(self) -> ProgressReports:
        return self._opened(ProgressReports)

    def interruption(self) -> Interruption:
        return self._opened(Interruption)

    def _opened(self, opening: Callable[[Settings], T]) -> T:
        """The result of `opening`, called once in each process; a parent's results are not used."""
        with self._mutex:
            if self._pid != os.getpid():
                self._pid, self._open = os.getpid(), {}
            if opening not in self._open:
                self._open[opening] = opening(self.settings)
            opened: T = self._open[opening]
            return opened

    def drop_session(self) -> None:
        """Close the session and release its locks: the answer to any doubt about a lock."""
        with self._mutex:
            session = self._open.pop(connect, None) if self._pid == os.getpid() else None
        if session is not None:
            session.close()

    def close(self) -> None:
        """Close the session and send pending events, before this process ends."""
        self.drop_session()
        if self._pid == os.getpid() and self._open_events in self._open:
            self._open[self._open_events].flush()

    def may_try(self, name: str) -> bool:
        """Whether to try a service that is unavailable on this host; True once in HOST_RETRY seconds."""
        with self._mutex:
            last = self._tried.get(name)
            if last is not None and time.monotonic() - last < HOST_RETRY:
                return False
            self._tried[name] = time.monotonic()
            return True

    def listen(self, listened: bool) -> None:
        """Note whether anybody listens to Celery's task events."""
        self._listened[0] = listened

    def events(self) -> TaskEvents | None:
        """The sender of task events; None while nobody listens."""
        return self._opened(self._open_events) if self._listened[0] else None

    def _open_events(self, _: Settings) -> TaskEvents:
        return TaskEvents(self.app, self.worker)

    def add_task(self, name: str, work: Callable[..., object], base: type[Task[Any, Any]] = Task) -> None:
        """Register `work`, which takes this context and the arguments of the message."""

        def task(*arguments: Any) -> object:
            return work(self, *arguments)

        self.app.task(name=name, shared=False, base=base, context=self)(task)
