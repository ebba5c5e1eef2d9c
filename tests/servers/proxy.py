"""A TCP proxy on loopback that loses bytes, cuts and refuses connections on demand.

with Proxy(server.port) as proxy:
    client = connect(proxy.hosts)
    proxy.swallow()              # the server still receives requests; its responses are lost
    client.write_something()
    proxy.swallowed.wait(5)      # the server has answered: the write is committed
    proxy.cut()                  # the client loses its connection, and reconnects
"""

import queue
import socket
import threading
import time
from contextlib import suppress
from typing import Self

HOST = "127.0.0.1"


class Proxy:
    def __init__(self, port: int, host: str = HOST, *, listener: socket.socket | None = None) -> None:
        """A free port of `host`, an address of this machine, leads to `port` of loopback.

        A `listener` of another network namespace leads to `port` of `host` in this one.
        """
        self._target = (host if listener else HOST, port)
        self._listener = listener or socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self.hosts = f"{host}:{self.port}"
        self.swallowed = threading.Event()
        """Set when a response of the server was dropped."""
        self.refused = threading.Event()
        """Set when a connection was refused."""
        self.connected = threading.Event()
        """Set when a client has been connected to the server."""
        self._lose_answers = self._lose_requests = self._refuse = False
        self._pattern: bytes | None = None
        self._pause: float | None = None
        self._delay = 0.0
        self._hurry = threading.Event()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._run(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hurry()
        self._close_pairs()
        for thread in list(self._threads):
            thread.join(5)

    def swallow(self) -> None:
        """Drop the bytes of the server; the bytes of clients still arrive."""
        self.swallowed.clear()
        self._lose_answers = True

    def swallow_after(self, pattern: bytes) -> None:
        """Drop the bytes of the server after a client has sent `pattern`."""
        self.swallowed.clear()
        self._pattern = pattern

    def partition(self) -> None:
        """Drop the bytes of both sides."""
        self._lose_answers = self._lose_requests = True

    def cut(self) -> None:
        """End all connections; new connections work, and lose nothing."""
        refused, self._refuse = self._refuse, True  # none begins before what was to be lost is lost
        self._close_pairs()
        self._lose_answers = self._lose_requests = False
        self._pattern = None
        self._refuse = refused

    def refuse(self) -> None:
        """End all connections and refuse new ones, until `accept`."""
        self.refused.clear()
        self._refuse = True
        self.cut()

    def accept(self) -> None:
        self._refuse = False

    def trickle(self, pause: float) -> None:
        """Pass the server's bytes on one by one, with `pause` seconds after each, until `hurry`."""
        self._hurry.clear()
        self._pause = pause

    def hurry(self) -> None:
        """End a trickle; connections that it slowed down go on at full speed."""
        self._pause = None
        self._hurry.set()

    def delay(self, seconds: float) -> None:
        """Deliver the server's bytes of new connections later, as over a longer network; all equally."""
        self._delay = seconds

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuse:
                client.close()
                self.refused.set()
                continue
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._pairs.add((client, server))
            self.connected.set()
            self._run(self._serve, client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        pump = self._pump_later if self._delay else self._pump
        back = threading.Thread(target=pump, args=(server, client, True), daemon=True)
        back.start()
        self._pump(client, server, False)
        back.join()
        with self._lock:
            self._pairs.discard((client, server))
        client.close()
        server.close()
        self._threads.remove(threading.current_thread())

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not answers and self._pattern is not None and self._pattern in data:
                    self._lose_answers = True
                if answers and self._lose_answers:
                    self.swallowed.set()
                elif not (not answers and self._lose_requests):
                    sink.sendall(self._trickled(sink, data) if answers else data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _pump_later(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        """As `_pump`, by way of a pair of sockets and a thread that holds all bytes back equally long."""
        arriving: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        before, after = socket.socketpair()

        def deliver() -> None:
            with after, suppress(OSError):
                while (piece := arriving.get())[1]:
                    time.sleep(max(0.0, piece[0] - time.monotonic()))
                    after.sendall(piece[1])

        def receive() -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    arriving.put((time.monotonic() + self._delay, data))
            arriving.put((0.0, b""))

        for work in (deliver, receive):
            threading.Thread(target=work, daemon=True).start()
        with before:
            self._pump(before, sink, answers)

    def _trickled(self, sink: socket.socket, data: bytes) -> bytes:
        """Send `data` byte by byte while the proxy trickles; the bytes that are left after that."""
        while data and (pause := self._pause) is not None:
            sink.sendall(data[:1])
            data = data[1:]
            self._hurry.wait(pause)
        return data

    def _close_pairs(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for each in pair:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _run(self, function: object, *arguments: object) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()
