"""Clients that follow the board's event stream, as open pages do: all in one thread."""

import asyncio
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

SECONDS = 30.0
"""Maximum seconds to wait for one event; a stream that does not get it fails the benchmark."""


def seconds_to_screens(
    url: str, tokens: Sequence[str], streams: int, changes: int, change: Callable[[int], str]
) -> list[float]:
    """For each change and stream: seconds from just before the change until the stream has the event.

    The streams are divided among the tokens.

    `change` makes one change to a job, and returns its JID.
    """
    return asyncio.run(_all(url, tokens, streams, changes, change))


async def _all(
    url: str, tokens: Sequence[str], streams: int, changes: int, change: Callable[[int], str]
) -> list[float]:
    readers = await asyncio.gather(*(_open(url, tokens[n % len(tokens)]) for n in range(streams)))
    took: list[float] = []
    for number in range(changes):
        start = time.perf_counter()
        jid = await asyncio.to_thread(change, number)
        await asyncio.gather(*(_until(reader, f'"subject":"{jid}"'.encode()) for reader, _ in readers))
        took += [time.perf_counter() - start]
    for _, writer in readers:
        writer.close()
    return took


async def _open(url: str, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 20)
    request = f"GET /v1/events HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(request.encode())
    await _until(reader, b"event: open")
    return reader, writer


async def _until(reader: asyncio.StreamReader, text: bytes) -> None:
    async with asyncio.timeout(SECONDS):
        while text not in await reader.readline():
            pass
