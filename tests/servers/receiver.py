"""A depositor's system on loopback: keeps what it is told, and answers as it was asked to."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Told:
    path: str
    headers: dict[str, str]
    raw: bytes


@dataclass
class Receiver:
    port: int = 0
    told: list[Told] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Status and headers of the next answers; afterwards 200."""
    hold: threading.Event | None = None
    """No answer before it is set."""
    news: threading.Condition = field(default_factory=threading.Condition)

    def url(self, path: str = "/callback", login: str = "") -> str:
        return f"http://{login}127.0.0.1:{self.port}{path}"

    def hear(self, told: Told) -> None:
        self.told.append(told)

    def await_told(self, times: int, timeout: float = 30) -> list[Told]:
        """What it was told, once it was told something so many times."""
        with self.news:
            if not self.news.wait_for(lambda: len(self.told) >= times, timeout):
                raise TimeoutError(f"told {len(self.told)} times, not {times}")
            return list(self.told)


@contextmanager
def receiving(kept: Receiver | None = None) -> Iterator[Receiver]:
    """The system; `kept` is one that ended, which comes back at its address with all that it was told."""
    receiver = kept or Receiver()

    class Answer(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing: the test's own output matters."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with receiver.news:
                receiver.hear(Told(self.path, dict(self.headers.items()), body))
                receiver.news.notify_all()
            if receiver.hold is not None:
                receiver.hold.wait(10)
            status, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", receiver.port), Answer)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        if receiver.hold is not None:
            receiver.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()
