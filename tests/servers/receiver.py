"""A depositor's system on loopback: keeps the callbacks it receives, sends the responses that a test sets."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.servers.base import Handler, serving


@dataclass(frozen=True)
class CallbackRequest:
    path: str
    headers: dict[str, str]
    raw: bytes


@dataclass
class Receiver:
    port: int = 0
    received: list[CallbackRequest] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Status and headers of the next answers; afterwards 200."""
    hold: threading.Event | None = None
    """If set: answers wait for this event."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def url(self, path: str = "/callback", login: str = "") -> str:
        return f"http://{login}127.0.0.1:{self.port}{path}"

    def record(self, request: CallbackRequest) -> None:
        self.received.append(request)

    def wait_for_requests(self, times: int, timeout: float = 30) -> list[CallbackRequest]:
        """The requests received, after at least `times` have arrived."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.received) >= times, timeout):
                raise TimeoutError(f"{len(self.received)} requests arrived, not {times}")
            return list(self.received)


@contextmanager
def receiving(previous: Receiver | None = None) -> Iterator[Receiver]:
    """The running system; `previous` was stopped, and restarts at the same address with its requests."""
    receiver = previous or Receiver()

    class Answer(Handler):
        def do_POST(self) -> None:
            body = self.request_body()
            with receiver.changed:
                receiver.record(CallbackRequest(self.path, dict(self.headers.items()), body))
                receiver.changed.notify_all()
            if receiver.hold is not None:
                receiver.hold.wait(10)
            status, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
            self.respond(status, headers=tuple(headers.items()))

    with serving(Answer, receiver.port) as receiver.port:
        try:
            yield receiver
        finally:
            if receiver.hold is not None:
                receiver.hold.set()
