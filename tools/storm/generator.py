"""A separate process, at nice 10, that sends the hostile or the honest requests to the web process.

The first line of its standard input is one `Order`; it prints one JSON list and exits when standard input
ends. Every hostile act is done at least once.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.http_source import HttpSource
from tools.storm import callers, honest

NICE = 10

ORDINARY = (
    *("/v1/batches?limit=50", "/batches", "/v1/failures", "/deposits", "/v1/board"),
    *("/v1/jobs?limit=50", "/failures", "/v1/profiles", "/help/deposit", "/jobs", "upload"),
)
"""The requests of an honest caller, in turn; every fifth upload is a deposit by URL."""


@dataclass(frozen=True)
class Order:
    url: str
    profile: str
    tokens: tuple[str, ...]
    """For hostile acts, a depositor's and a viewer's; otherwise one per honest caller."""
    seconds: float
    """Duration of one hostile act, or maximum duration of all honest requests."""
    a_second: float = 0.0
    """Honest requests of all callers together."""


@dataclass(frozen=True)
class Phase:
    """One hostile act."""

    act: str
    began: float
    ended: float
    answers: dict[str, int]


@dataclass(frozen=True)
class Request:
    """An honest request. Times are on the monotonic clock, which all processes share."""

    at: float
    seconds: float
    status: int
    """0: no answer."""
    path: str


def start(order: Order) -> "subprocess.Popen[str]":
    project = Path(__file__).parents[2]
    process = subprocess.Popen(
        (sys.executable, "-W", "ignore", "-m", "tools.storm.generator"),
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(project)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(order)) + "\n")  # not an argument, because it has tokens
    process.stdin.flush()
    return process


def hostile(order: Order, over: threading.Event) -> list[Phase]:
    address = urlsplit(order.url)
    depositor, viewer = order.tokens
    phases: list[Phase] = []
    with (
        HttpSource(host="127.0.0.3") as source,
        socket.create_server(("127.0.0.4", 0), backlog=200) as listening,
    ):
        callers.serve_lines(source)
        silent = f"http://127.0.0.4:{listening.getsockname()[1]}/m.checkm"
        target = callers.Target(
            address.hostname or "", address.port or 0, depositor, viewer, order.profile, source, silent
        )
        while not phases or not over.is_set():
            for name, act in callers.ACTS.items():
                began = time.monotonic()
                answers = callers.perform(act, target, order.seconds)
                phases.append(Phase(name, began, time.monotonic(), dict(answers)))
    return phases


def ordinary(order: Order, over: threading.Event) -> list[Request]:
    """Send the requests of all callers, each at its own pace."""
    began, own = time.monotonic(), len(order.tokens) / order.a_second
    with HttpSource(host=honest.HOST) as source, ThreadPoolExecutor(len(order.tokens)) as pool:
        url = source.put("/honest.bin", b"harbour" * 1000)

        def caller(number: int) -> list[Request]:
            sent: list[Request] = []
            turn = number
            at = began + own * number / len(order.tokens)
            while at < began + order.seconds and not over.wait(max(0.0, at - time.monotonic())):
                sent.append(_ask(order, order.tokens[number], turn, url))
                turn += 1
                at = max(at + own, time.monotonic())
            return sent

        sent = list(pool.map(caller, range(len(order.tokens))))
    return [request for requests in sent for request in requests]


def _ask(order: Order, token: str, turn: int, payload: str) -> Request:
    address, path = urlsplit(order.url), ORDINARY[turn % len(ORDINARY)]
    method, body, headers = "GET", b"", {"Authorization": f"Bearer {token}"}
    if path == "upload":
        method, path, body = "POST", "/v1/uploads?name=a.bin", b"lighthouse" * 1000
        if turn // len(ORDINARY) % 5 == 0:
            path, headers = "/v1/batches", {**headers, "Content-Type": "application/json"}
            body = json.dumps({"profile": order.profile, "payload_url": payload}).encode()
    at = time.monotonic()
    connection = HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        response.read()
        status = response.status
    except (OSError, HTTPException):
        status = 0
    finally:
        connection.close()
    return Request(at, time.monotonic() - at, status, path)


def main() -> None:
    os.nice(NICE)
    order = Order(**json.loads(sys.stdin.readline()))
    over = threading.Event()

    def await_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=await_end, daemon=True).start()
    sent = ordinary(order, over) if order.a_second else hostile(order, over)
    sys.stdout.write(json.dumps([asdict(one) for one in sent]) + "\n")


if __name__ == "__main__":
    main()
