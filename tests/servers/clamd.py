"""A real clamd as a child process, with signatures of the tests' own; and one that answers badly.

ClamAV's public signatures cannot be fetched everywhere. Ours are written when the server starts: EICAR's test
file is composed then, so that no file of the repository has it.
"""

import os
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from entrypoints.stack.child import Command, Process, free_ports
from plugins.clamav.clamd import Clamd, ConnectionLost, NoAnswer, Unreachable
from plugins.clamav.samples import eicar
from tests.support.processes import await_ready

HOST = "127.0.0.1"
EICAR_NAME = "Arkline.Test.EICAR.UNOFFICIAL"
ENDLESS_NAME = "Arkline.Test.Endless"
ENDLESS = b"endless:" + b"a" * 60
"""A file with which clamd is busy for hours: the pattern below tries 2 to the power of 60 ways."""

SETTINGS = {
    "Foreground": "yes",
    "AlertExceedsMax": "yes",
    "AlertEncrypted": "yes",
    "StreamMaxLength": "20M",
    "MaxFileSize": "10M",
    "MaxScanSize": "10M",
    "PCREMatchLimit": "4000000000",
    "PCRERecMatchLimit": "4000000000",
    "MaxScanTime": "3600000",
    "MaxThreads": "4",
}


class ClamdMissing(Exception):
    """This machine has no clamd."""


def program() -> str:
    found = shutil.which("clamd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise ClamdMissing("clamd is not installed: apt-get install clamav-daemon")
    return found


class Server:
    def __init__(self, folder: Path, settings: Mapping[str, str], virus: bytes) -> None:
        (self.port,) = free_ports(1)
        self.socket = folder / "clamd.ctl"
        self.unix = f"unix:{self.socket}"
        self.tcp = f"tcp:{HOST}:{self.port}"
        self.database = folder / "database"
        self.database.mkdir()
        (folder / "tmp").mkdir()
        self._write_signatures(virus)
        places = {
            "DatabaseDirectory": self.database,
            "TemporaryDirectory": folder / "tmp",
            "LocalSocket": self.socket,
            "FixStaleSocket": "yes",
            "TCPSocket": self.port,
            "TCPAddr": HOST,
        }
        lines = [f"{name} {value}\n" for name, value in {**places, **SETTINGS, **settings}.items()]
        (folder / "clamd.conf").write_text("".join(lines))
        argv = (program(), "--config-file", str(folder / "clamd.conf"))
        self.process = Process(Command("clamd", argv, folder / "clamd.log"))

    def _write_signatures(self, virus: bytes) -> None:
        (self.database / "own.ndb").write_text(f"Arkline.Test.EICAR:0:*:{virus.hex()}\n")
        (self.database / "own.ldb").write_text(
            f"{ENDLESS_NAME};Engine:81-255,Target:0;0&1;{b'endless:'.hex()};0/endless:(a+)+[bc]/\n"
        )

    def start(self) -> None:
        """Start the server, and wait until it has loaded its signatures and answers."""
        self.process.start()
        await_ready(self.process, self.answers)

    def answers(self) -> bool:
        try:
            return Clamd(self.unix).ask("PING", 1, lambda: None) == "PONG"
        except (Unreachable, ConnectionLost, NoAnswer):
            return False


@contextmanager
def running(folder: Path, virus: bytes | None = None, **settings: str) -> Iterator[Server]:
    """A server with its files in `folder`, until the block ends; `settings` are lines of clamd.conf.

    It finds `virus`, which is EICAR's test file by default.
    """
    server = Server(folder, settings, virus or eicar())
    try:
        server.start()
        yield server
    finally:
        server.process.kill()  # one that works on an endless file does not end otherwise


class Relay(threading.Thread):
    """Passes connections on to clamd, but answers some streams itself.

    with Relay(server.port) as relay:
        relay.answer, relay.after = b"stream: what?", b"a"     # streams with these bytes
    """

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.after = b""
        """The streams that contain it are answered here; empty: none."""
        self.answer = b""
        """Empty: the connection is closed."""
        self.times = 1000
        """How many of them at most."""
        self.streams = 0
        """Streams that were answered here."""
        self._port = port
        self._listener = socket.create_server((HOST, 0), backlog=16)
        self.address = f"tcp:{HOST}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join()

    def run(self) -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _ = self._listener.accept()
                with client, suppress(ConnectionError):
                    self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        """One command, or one small stream; each is one packet."""
        request = client.recv(65536)
        if self.after and self.after in request and self.streams < self.times:
            self.streams += 1
            client.sendall(self.answer)
            return
        with socket.create_connection((HOST, self._port)) as server:
            server.sendall(request)
            while data := server.recv(65536):
                client.sendall(data)
