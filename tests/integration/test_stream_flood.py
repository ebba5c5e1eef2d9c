"""Many more streams than one web process serves: the others are refused, and nothing else suffers."""

import asyncio
import json
import resource
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from entrypoints.web.streams import STREAMS, STREAMS_OF_TOKEN
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support import cli
from tests.support.web import Caller, new_token
from zkstate.connection.session import Session

MANY = 2_000
"""Streams beyond the limit; each is a connection of its own."""

AT_A_TIME = 100
PATIENCE = 60.0
"""Seconds for one answer of a server that is flooded, on a busy machine."""

GROWTH = 16 << 20
"""Bytes by which refused streams may enlarge the web process: a leak of 8 kB for each would be more."""


@dataclass(frozen=True)
class WebProcess:
    url: str
    pid: int

    @property
    def bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()


@dataclass
class Flood:
    """Requests for streams, all from one thread."""

    url: str
    tokens: list[str]
    answers: Counter[int] = field(default_factory=Counter)
    open: list[asyncio.StreamWriter] = field(default_factory=list)
    without_advice: int = 0
    """Refusals that do not say when to try again."""
    broken: int = 0
    """Streams that were accepted and ended at once."""

    async def request(self, number: int) -> None:
        at = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        token = self.tokens[number % len(self.tokens)]
        head = f"GET /v1/events HTTP/1.1\r\nHost: {at.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        status = int(answer.split(b" ", 2)[1])
        self.answers[status] += 1
        if status == 200:
            first = await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE)
            self.broken += first == b"0\r\n"
            self.open.append(writer)
            return
        self.without_advice += b"retry-after: " not in answer.lower()
        writer.close()

    async def request_all(self, numbers: range) -> None:
        places = asyncio.Semaphore(AT_A_TIME)

        async def one(number: int) -> None:
            async with places:
                await self.request(number)

        await asyncio.gather(*(one(number) for number in numbers))


@pytest.fixture
def room_for_connections() -> Iterator[None]:
    """Open files for a client that holds STREAMS connections and opens AT_A_TIME further ones."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = STREAMS + AT_A_TIME + 500
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard) if hard > 0 else needed, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def web(settings: Settings, session: Session, room_for_connections: None) -> Iterator[WebProcess]:
    with cli.start(settings, "web", "--port", "0", "--json", ARKLINE_LOG_LEVEL="ERROR") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        answer = "".join(process.stdout.readline() for _ in range(3))  # the document has three lines
        yield WebProcess(json.loads(answer)["url"], process.pid)
        process.kill()
        print(process.stderr.read()[-5000:])  # noqa: T201 - pytest shows it with a failure


def test_streams_beyond_the_limit_are_refused_before_they_hurt(web: WebProcess, settings: Settings) -> None:
    tokens = [new_token(settings, f"viewer-{number}", Role.VIEWER) for number in range(10)]
    other = Caller(web.url, new_token(settings, "other", Role.VIEWER))

    async def flood() -> tuple[Flood, int]:
        flood = Flood(web.url, tokens)
        try:
            return flood, await growth(flood)
        finally:
            for writer in flood.open:
                writer.close()

    async def growth(flood: Flood) -> int:
        await flood.request_all(range(2 * STREAMS))
        full = dict(flood.answers)
        before = web.bytes
        refusing = asyncio.create_task(flood.request_all(range(MANY)))
        meanwhile = 0
        while not refusing.done():
            for path in ("/health/live", "/v1/jobs"):
                assert (await asyncio.to_thread(other.get, path)).status_code == 200
            meanwhile += 1
        await refusing
        assert full == {200: STREAMS, 503: STREAMS}
        assert meanwhile
        return web.bytes - before

    seen, grown = asyncio.run(flood())

    assert seen.answers == {200: STREAMS, 503: STREAMS + MANY}
    assert (seen.broken, seen.without_advice) == (0, 0)
    assert len(tokens) * STREAMS_OF_TOKEN > STREAMS
    assert grown < GROWTH, f"the web process has grown by {grown:,} bytes"
