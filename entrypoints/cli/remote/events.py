"""The server-sent events of a site, as long as the caller wants them: lost connections are opened again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from entrypoints.cli.remote.client import Client
from pipeline.errors import ArklineError, ServiceUnreachable

SILENCE = 45.0
"""Seconds without a byte after which the connection counts as lost: a site sends a comment every 15."""

RETRY_INTERVAL = 2.0
"""Seconds until a site that was lost is tried again."""


@dataclass(frozen=True)
class ServerEvent:
    """`kind` is `open` for the first event of a connection, and `reset` if events before it are lost."""

    kind: str
    id: str = ""
    data: str = ""


@dataclass(frozen=True)
class Away:
    """The site does not answer; the next ServerEvent means that it answers again."""

    error: ServiceUnreachable


News = ServerEvent | Away


def read_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """The events of the lines of a stream.

    >>> list(read_events(["id: 7", "event: job", "data: {}", "", ": still here", ""]))
    [ServerEvent(kind='job', id='7', data='{}')]
    """
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "event" in fields:
            yield ServerEvent(fields["event"], fields.get("id", ""), fields.get("data", ""))
            fields = {}
        else:
            fields = {}


class Stream:
    """The events of one path, read on a thread of its own; `next` gives them to the caller's thread."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path
        self._queue: SimpleQueue[News | ArklineError] = SimpleQueue()
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="events", daemon=True).start()

    def close(self) -> None:
        self._ended.set()

    def next(self, seconds: float | None) -> News | None:
        """What came next, or None after `seconds`; raises what the site refuses."""
        try:
            news = self._queue.get(timeout=seconds)
        except Empty:
            return None
        if isinstance(news, ArklineError):
            raise news
        return news

    def _run(self) -> None:
        last = ""
        while not self._ended.is_set():
            try:
                with closing(self._client.open_stream(self._path, last, SILENCE)) as lines:
                    for event in read_events(lines):
                        last = event.id or last
                        self._queue.put(event)
            except ServiceUnreachable as error:
                self._queue.put(Away(error))
            except ArklineError as error:
                self._queue.put(error)
                return
            self._ended.wait(RETRY_INTERVAL)


@contextmanager
def stream(client: Client, path: str) -> Iterator[Callable[[float | None], News | None]]:
    """Within this block the function gives the next event, as `Stream.next`."""
    opened = Stream(client, path)
    opened.start()
    try:
        yield opened.next
    finally:
        opened.close()
