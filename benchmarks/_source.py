"""A fast content source in its own process: the files of a folder, and numbered small files.

`python -m benchmarks._source FOLDER` prints its port, and serves until its input ends.
"""

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

HOST = "127.0.0.1"
SMALL = "/small/"
"""Prefix of the paths of small files, which end with the file's number."""

_REST = random.Random(1).randbytes(9_990)


def small_body(number: int) -> bytes:
    """The 10,000 bytes of a small file, different for every number."""
    return b"%010d" % number + _REST


class _Answers(asyncio.Protocol):
    """HTTP/1.1 with keep-alive: small bodies from memory, files by sendfile."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            request, _, self._received = self._received.partition(b"\r\n\r\n")
            path = request.split(b" ", 2)[1].decode()
            if path.startswith(SMALL):
                body = small_body(int(path.removeprefix(SMALL)))
                self._transport.write(_headers(len(body), path) + body)
            else:
                self._sending = asyncio.ensure_future(self._send(self._folder / path.lstrip("/")))

    async def _send(self, file: Path) -> None:
        self._transport.write(_headers(file.stat().st_size, file.name))
        with file.open("rb") as body:
            await asyncio.get_running_loop().sendfile(self._transport, body)


def _headers(size: int, tag: str) -> bytes:
    return (
        "HTTP/1.1 200 OK\r\nServer: source\r\nContent-Type: application/octet-stream\r\n"
        f'Content-Length: {size}\r\nETag: "{tag}"\r\n'
        "Date: Mon, 23 Nov 2026 10:00:00 GMT\r\nLast-Modified: Sun, 22 Nov 2026 10:00:00 GMT\r\n"
        "Accept-Ranges: bytes\r\nConnection: keep-alive\r\n\r\n"
    ).encode()


async def _serve(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Answers(folder), HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The URL of a source that serves `folder`."""
    command = (sys.executable, "-m", "benchmarks._source", str(folder))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://{HOST}:{int(process.stdout.readline())}"
        process.stdin.close()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
