"""Retrieval over the API: one large file, and many small files as a bag and as a zip.

`ARKLINE_BENCH_MIB` (1,024) and `ARKLINE_BENCH_FILES` (5,000, of 10,000 bytes); the goals are for these. The
baseline reads the same warm files, computes the sha512 of each and sends it over loopback, in one process
that does nothing else. Both sides send to the same client, which drops what arrives, and they take turns;
`ratio` divides the seconds of the baseline by those of the retrieval. CPU is that of the sending process.
"""

import hashlib
import http.client
import multiprocessing
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks._machine import host
from benchmarks._options import ROUNDS, option
from benchmarks._output import run, tell
from benchmarks._processes import cpu_seconds
from benchmarks._spent import Spent, medians, ratios
from benchmarks._stack import Stack, stack
from entrypoints.stack.child import free_ports
from pipeline.principal import Role
from tests.support.repository import Repository, empty_inventory
from tests.support.web import new_token

ARKLINE = Path(sys.executable).parent / "arkline"
MIB = option("MIB", 1024)
FILES = option("FILES", 5000)
FILE_BYTES = 10_000
PIECE = 1 << 20
GOAL = 0.8


def send_all(listener: socket.socket, orders: Connection) -> None:
    """For each order, a list of files: hash and send them to whoever connects; answers the CPU so far."""
    buffer = memoryview(bytearray(PIECE))
    while files := orders.recv():
        taken, _ = listener.accept()
        with taken:
            for path in files:
                digest = hashlib.sha512()
                with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as little as possible
                    while size := file.readinto(buffer):
                        digest.update(buffer[:size])
                        taken.sendall(buffer[:size])
                digest.hexdigest()
        used = resource.getrusage(resource.RUSAGE_SELF)
        orders.send(used.ru_utime + used.ru_stime)


class Baseline:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._orders, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=send_all, args=(self._listener, theirs))
        self._process.start()
        self._cpu = 0.0

    def send(self, files: list[str], size: int) -> Spent:
        began = time.perf_counter()
        self._orders.send(files)
        with socket.create_connection(self._listener.getsockname()) as client:
            received = drained(client.recv_into)
        seconds = time.perf_counter() - began
        assert received == size
        before, self._cpu = self._cpu, self._orders.recv()
        return Spent(seconds, self._cpu - before)

    def close(self) -> None:
        self._orders.send([])
        self._process.join()
        self._listener.close()


def drained(read: Callable[[memoryview], int]) -> int:
    """Read to the end; returns the number of bytes."""
    buffer, received = memoryview(bytearray(PIECE)), 0
    while size := read(buffer):
        received += size
    return received


class Site:
    """The web process as it is shipped."""

    def __init__(self, url: str, pid: int, token: str) -> None:
        self._address = url.removeprefix("http://")
        self._pid = pid
        self._headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str, size: int) -> Spent:
        """Retrieve at least `size` bytes."""
        cpu, began = cpu_seconds([self._pid]), time.perf_counter()
        with closing(http.client.HTTPConnection(self._address, timeout=300)) as client:
            client.request("GET", path, headers=self._headers)
            answer = client.getresponse()
            assert answer.status == 200, answer.read()
            stated = int(answer.headers["Content-Length"])
            received = drained(answer.readinto)
        seconds = time.perf_counter() - began
        assert received == stated >= size
        return Spent(seconds, cpu_seconds([self._pid]) - cpu)


@contextmanager
def serving(own: Stack) -> Iterator[Site]:
    """The web process; it is stopped at the end of the block."""
    port = free_ports(1)[0]
    process = own.fleet.start("web", str(ARKLINE), "web", "--port", str(port), wait=False)
    while process.running:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            break
        time.sleep(0.05)
    assert process.running, process.log_tail(20)
    try:
        yield Site(f"http://127.0.0.1:{port}", process.pid, new_token(own.settings, "reader", Role.OPERATOR))
    finally:
        process.terminate()
        process.stop(10)


def main() -> None:
    with TemporaryDirectory() as name, stack() as own, closing(Baseline()) as beside:
        own.settings.home.mkdir(parents=True, exist_ok=True)
        repository = Repository(own.settings.home, empty_inventory(Path(name)))
        piece = os.urandom(PIECE)
        large = repository.recorded(repository.job(1, {"large": piece * MIB}))
        bodies = {f"{one:05}": piece[one % 9999 :][:FILE_BYTES] for one in range(FILES)}
        small = repository.recorded(repository.job(2, bodies))
        stored = {path.name: str(path) for path in own.settings.storage.rglob("producer/*") if path.is_file()}
        sizes = {"file": MIB << 20, "bag": FILES * FILE_BYTES, "zip": FILES * FILE_BYTES}
        files = {"file": [stored.pop("large")], "bag": sorted(stored.values())}
        files["zip"] = files["bag"]
        paths = {
            "file": f"/v1/objects/{large.ark}/versions/1/files/producer/large",
            "bag": f"/v1/objects/{small.ark}/versions/1/bag",
            "zip": f"/v1/objects/{small.ark}/versions/1/zip",
        }
        figures: dict[str, object] = {}
        met = True
        with serving(own) as site:
            for kind, path in paths.items():
                rounds = []
                for number in range(ROUNDS + 1):
                    one = (beside.send(files[kind], sizes[kind]), site.get(path, sizes[kind]))
                    rounds += [one] if number else []  # the first is for the caches
                base, ours = zip(*rounds, strict=True)
                by_round = ratios(base, ours)
                figures |= {
                    f"{kind}_ratio": round(median(by_round), 3),
                    f"{kind}_ratio_range": [round(min(by_round), 3), round(max(by_round), 3)],
                    **medians(f"{kind}_retrieved", ours),
                    **medians(f"{kind}_hashed_and_sent", base),
                }
                met &= median(by_round) >= GOAL
        tell(
            {
                "benchmark": "retrieve",
                "goal": GOAL,
                "met": met,
                "rounds": ROUNDS,
                "figures": {"mebibytes": MIB, "files": FILES, **figures, **host()},
            }
        )


if __name__ == "__main__":
    run(main, __doc__)
