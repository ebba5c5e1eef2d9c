"""A proxy that speaks TLS before a server that does not: the Valkey of the tests is built without TLS."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.certificates import Certificate

HOST = "127.0.0.1"


@contextmanager
def encrypting(target: int, own: Certificate, port: int = 0) -> Iterator[int]:
    """A port, a free one for 0, that leads to the port `target` of loopback, until the block ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    loop = asyncio.new_event_loop()
    opened: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            inner_reader, inner_writer = await asyncio.open_connection(HOST, target)
            opened.update((writer, inner_writer))
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

    server = loop.run_until_complete(asyncio.start_server(serve, HOST, port, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        asyncio.run_coroutine_threadsafe(_end(opened), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()


async def _end(opened: set[asyncio.StreamWriter]) -> None:
    """Abort all connections, and wait until nothing copies any more."""
    for writer in opened:
        if not writer.is_closing():  # Python 3.11.2 aborts no TLS connection that has ended
            writer.transport.abort()
    if running := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(running)
