"""The context of the tasks of one worker: settings, the Celery application, a session and the clients.

A kazoo client is dead after a fork, and a lock must not outlive the process that holds it: the session
belongs to the process id that opened it, and is opened on first use, never in a parent process.
"""

import mmap
import os
import socket
import threading

from celery import Celery

from pipeline.settings import Settings
from pipeline.steps.clients import Clients, open_clients
from tasks.progress import ProgressReports
from zkstate.session import Session, connect


class WorkerContext:
    """Made before a worker forks; the session and the clients are opened once in each process."""

    def __init__(self, settings: Settings, app: Celery) -> None:
        self.settings = settings
        self.app = app
        self._mutex = threading.Lock()
        self._session: Session | None = None
        self._clients: Clients | None = None
        self._progress: ProgressReports | None = None
        self._pid = 0
        self._stop = mmap.mmap(-1, 1)
        """One byte of memory that is shared with the processes forked from this one."""

    @property
    def name(self) -> str:
        return f"worker {socket.gethostname()}:{os.getpid()}"

    def ask_to_stop(self) -> None:
        """Ask the running attempts of this process and of its children to hand their jobs back."""
        self._stop[0] = 1

    def stopping(self) -> bool:
        return bool(self._stop[0])

    def session(self) -> Session:
        with self._mutex:
            self._forget_parent()
            if self._session is None:
                self._session = connect(self.settings)
            return self._session

    def clients(self) -> Clients:
        with self._mutex:
            self._forget_parent()
            if self._clients is None:
                self._clients = open_clients(self.settings)
            return self._clients

    def progress(self) -> ProgressReports:
        with self._mutex:
            self._forget_parent()
            if self._progress is None:
                self._progress = ProgressReports(self.settings)
            return self._progress

    def drop_session(self) -> None:
        """Close the session and release its locks: the answer to any doubt about a lock."""
        with self._mutex:
            session, self._session = self._session, None
            owner = self._pid == os.getpid()
        if session is not None and owner:
            session.close()

    def _forget_parent(self) -> None:
        """Abandon, without stopping it, a session that was inherited through a fork."""
        if self._pid != os.getpid():
            self._session, self._clients, self._progress, self._pid = None, None, None, os.getpid()
