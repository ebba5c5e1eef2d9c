"""Hostile requests: what a depositor's token, and a client without one, may send to the web process.

Each act is repeated for some seconds by threads of its own, and must delay nobody else.
"""

import itertools
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException

from pipeline.manifests.checkm import ManifestProfile
from tests.e2e.collection import manifest
from tests.servers.http_source import HttpSource

FILES_IN_WORKING_STORAGE = 100_000
"""Files as left by one depositor's failed containers; with this many, measuring takes seconds."""

PART = 50_000_000
"""Bytes of the unfinished file that is resumed at a wrong offset."""

HELD = 1500
"""Connections that one client keeps open."""

UNCOUNTED = 15.0
"""Requests a second, so that the rate limit of a token (1,200 a minute) does not end the act."""

MEGABYTE = b"x" * 1_000_000


@dataclass
class Target:
    """The web process, and what else the acts need."""

    host: str
    port: int
    token: str
    viewer: str
    """The token of a principal that may see working storage."""
    profile: str
    source: HttpSource
    silent: str
    """The URL of a host that accepts connections and never answers."""
    end: float = 0.0
    """The end of the act on the monotonic clock; no client waits longer."""
    unfinished: str = ""
    """The path of an upload that has PART bytes of a longer file."""
    held: list[socket.socket] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


Body = bytes | Iterator[bytes] | None


def _send(
    target: Target,
    method: str,
    path: str,
    body: Body = None,
    headers: Mapping[str, str] | None = None,
) -> str:
    """Send a request; returns the status, or how the connection ended."""
    timeout = max(1.0, target.end - time.monotonic())
    connection = HTTPConnection(target.host, target.port, timeout=timeout)
    try:
        connection.request(method, path, body, {**target.bearer, **(headers or {})})
        response = connection.getresponse()
        response.read()
        if location := response.headers.get("Location", ""):
            target.unfinished = target.unfinished or location
        return str(response.status)
    except TimeoutError:
        return "client left"
    except (OSError, HTTPException):
        return "closed by the server"
    finally:
        connection.close()


def _batch(target: Target, query: str, **deposit: object) -> str:
    document = {"profile": target.profile, "payload_url": target.silent, **deposit}
    headers = {"Content-Type": "application/json"}
    return _send(target, "POST", f"/v1/batches{query}", json.dumps(document).encode(), headers)


def _silent_host(target: Target) -> str:
    return _batch(target, "?dry_run=true", type="object-manifest")


def _space(target: Target) -> str:
    return _send(target, "GET", "/v1/space", headers={"Authorization": f"Bearer {target.viewer}"})


def _many_lines(target: Target) -> str:
    url = target.source.url("/many.checkm")
    return _batch(target, "?dry_run=true", type="single-file-batch-manifest", payload_url=url)


def _until_the_end(target: Target, pieces: Iterator[bytes]) -> Iterator[bytes]:
    return itertools.takewhile(lambda _: time.monotonic() < target.end, pieces)


def _large_fields(target: Target) -> str:
    fields = [
        b'--b\r\nContent-Disposition: form-data; name="f%d"\r\n\r\n' % n + MEGABYTE + b"\r\n"
        for n in range(5)
    ]
    size = str(sum(map(len, fields)) * 40)
    form = {"Content-Type": "multipart/form-data; boundary=b", "Content-Length": size}
    body = _until_the_end(target, itertools.chain.from_iterable(itertools.repeat(fields, 40)))
    return _send(target, "POST", "/poster/submit", body, form)


def _unsized_form(target: Target) -> str:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    body = _until_the_end(target, itertools.chain([head], itertools.repeat(MEGABYTE, 400)))
    return _send(target, "POST", "/deposits", body, {"Content-Type": "multipart/form-data; boundary=b"})


def _pages(target: Target) -> str:
    return _send(target, "GET", "/deposits")


def _wrong_offset(target: Target) -> str:
    with target.guard:
        if not target.unfinished:
            headers = {"Upload-Complete": "?0", "Upload-Length": str(2 * PART)}
            return _send(target, "POST", "/v1/uploads?name=part.bin", bytes(PART), headers)
    headers = {"Upload-Offset": "1", "Upload-Complete": "?0"}
    return _send(target, "PATCH", target.unfinished, b"", headers)


def _many_recipients(target: Target) -> str:
    addresses = ",".join(f"stranger{number}@example.org" for number in range(150))
    return _batch(target, "", type="file", notification=[addresses])


def _slow_clients(target: Target) -> str:
    """Open three half-sent heads and a dripping body, and send one more byte on those already open."""
    upload = (
        f"POST /v1/uploads?name=slow.bin HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {target.token}\r\n"
        "Content-Length: 1000000\r\n\r\nx"
    )
    firsts = [*["GET /v1 HTTP/1.1\r\nHost: a\r\nX-A: "] * 3, upload]
    answer = "held"
    with target.guard:
        for first in firsts if len(target.held) < HELD else ():
            try:
                opened = socket.create_connection((target.host, target.port), timeout=1)
            except OSError:
                return "refused"
            target.held.append(opened)
            with suppress(OSError):
                opened.sendall(first.encode())
        for connection in list(target.held[:40]):
            target.held.remove(connection)
            try:
                connection.sendall(b"x")
            except OSError:
                connection.close()
                answer = "closed by the server"
            else:
                target.held.append(connection)
    return answer


def _two_lengths(target: Target) -> str:
    headers = {"Content-Length": "10", "Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    piece = b"%x\r\n" % len(MEGABYTE) + MEGABYTE + b"\r\n"
    return _send(target, "POST", "/v1/batches", itertools.repeat(piece, 64), headers)


def _unknown_methods(target: Target) -> str:
    return _send(target, f"{'Z' * 30_000}{time.monotonic_ns()}", "/v1")


@dataclass(frozen=True)
class Act:
    send: Callable[[Target], str]
    threads: int = 8
    a_second: float = UNCOUNTED
    most: int = 20_000
    """Maximum number of requests."""
    refused: bool = False
    """Whether accepting a request is a fault."""


ACTS: Mapping[str, Act] = {
    "dry-runs-of-a-silent-host": Act(_silent_host, threads=45),
    "space-of-many-files": Act(_space, threads=60),
    "forms-with-large-fields": Act(_large_fields, threads=4),
    "forms-without-a-size": Act(_unsized_form, threads=4),
    "dry-runs-of-99000-lines": Act(_many_lines, threads=6),
    "continuing-at-a-wrong-offset": Act(_wrong_offset, threads=5),
    "notification-of-150-addresses": Act(_many_recipients, refused=True),
    "half-headers-and-dripping-bodies": Act(_slow_clients, threads=1),
    "two-statements-of-the-length": Act(_two_lengths, threads=4),
    "unknown-methods": Act(_unknown_methods),
    "1300-pages-in-6-seconds": Act(_pages, threads=20, a_second=220, most=1300),
}
"""The last act uses up the token's requests for a minute."""


def accepted(act: str, answers: Mapping[str, int]) -> list[str]:
    """Report a problem if the server accepted what it has to refuse."""
    wrong = [answer for answer in answers if ACTS[act].refused and answer.startswith("2")]
    return [f"{act}: answered {answer}" for answer in wrong]


def serve_lines(source: HttpSource) -> None:
    rows = [f"http://h/{number}" for number in range(99_000)]
    source.put("/many.checkm", manifest(ManifestProfile.FILE_BATCH.uri, rows))


def perform(act: Act, target: Target, seconds: float) -> Counter[str]:
    """How often each answer was given; held connections are closed at the end."""
    target.end = time.monotonic() + seconds
    answers: Counter[str] = Counter()
    turns, guard = itertools.count(), threading.Lock()
    began = time.monotonic()

    def caller() -> None:
        while True:
            with guard:
                turn = next(turns)
            at = began + turn / act.a_second
            if turn >= act.most or at >= target.end:
                return
            time.sleep(max(0.0, at - time.monotonic()))
            if time.monotonic() >= target.end:
                return
            answer = act.send(target)
            with guard:
                answers[answer] += 1

    with ThreadPoolExecutor(act.threads) as pool:
        for done in [pool.submit(caller) for _ in range(act.threads)]:
            done.result()
    time.sleep(max(0.0, target.end - time.monotonic()))
    for connection in target.held:
        connection.close()
    target.held.clear()
    return answers
