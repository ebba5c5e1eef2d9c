"""What one worker process has: its ZooKeeper session and its clients, made on first use.

A kazoo client is dead after a fork, and the life of a lock must be the life of its process: so the
session belongs to the process id that made it, and is never made at import or in a parent.
"""

import mmap
import os
import socket
import threading
from typing import TYPE_CHECKING

from pipeline.settings import Settings
from zkstate.session import Session, connect

if TYPE_CHECKING:
    from pipeline.steps.clients import Clients


class Process:
    """The lazily made session and clients of the current process."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._session: Session | None = None
        self._kit: Clients | None = None
        self._pid = 0
        self._stop = mmap.mmap(-1, 1)
        """One byte that is shared with the processes forked from this one."""

    def ask_to_stop(self) -> None:
        """Ask the running attempts of this process and of its children to hand their jobs back."""
        self._stop[0] = 1

    def stopping(self) -> bool:
        return bool(self._stop[0])

    def session(self) -> Session:
        with self._mutex:
            self._forget_parents()
            if self._session is None:
                self._session = connect(Settings())
            return self._session

    def clients(self) -> "Clients":
        # imported here, since the command line, beat and Flower load this module and use no client
        from pipeline.steps.clients import open_clients

        with self._mutex:
            self._forget_parents()
            if self._kit is None:
                self._kit = open_clients(Settings())
            return self._kit

    def drop_session(self) -> None:
        """Close the session, and with it every lock it holds: the answer to any doubt about a lock."""
        with self._mutex:
            session, self._session = self._session, None
            owner = self._pid == os.getpid()
        if session is not None and owner:
            session.close()

    def _forget_parents(self) -> None:
        """Abandon, without stopping it, what was inherited through a fork."""
        if self._pid != os.getpid():
            self._session, self._kit, self._pid = None, None, os.getpid()

    @property
    def name(self) -> str:
        return f"worker {socket.gethostname()}:{os.getpid()}"


PROCESS = Process()
