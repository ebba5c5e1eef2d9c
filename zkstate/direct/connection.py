"""kazoo's connection, on which each thread sends its own requests and reads its own answers.

kazoo passes each request to its connection thread, which sends the request, reads the answer and wakes the
waiting thread: two thread switches per packet, which cost more than the packet. Here kazoo's thread only
connects, reads what no thread waits for (watches, pings), and detects that the server is gone. It also sends
the requests that are made while there is no connection.

Rule: `_sending` guards the order of the requests, which is that of `client._pending`; `_reading` guards the
order of the answers. A thread that needs both acquires `_reading` first. A failure in between breaks the
connection, and kazoo's thread opens a new one, so that no answer is matched to another request.

Rule: OpenSSL allows one thread at a time: with TLS, bytes are received under `_sending` too, which no thread
holds while it waits for an answer.

Rule: an exception may end a thread at any line, for example one raised by a signal handler; nothing here
relies on the next line being reached. Python may leave the line of a `try` unprotected unless it is the first
of its function.
"""

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

from kazoo.exceptions import ConnectionClosedError, ConnectionDropped, ConnectionLoss
from kazoo.protocol.connection import AUTH_XID, ConnectionHandler
from kazoo.protocol.serialization import Auth, ReplyHeader, int_struct

from zkstate.direct.handler import Gate

READ_TIME = 0.1
"""Seconds for which a thread reads for its own answer; after that kazoo's thread reads, and wakes it. Within
this time kazoo's thread cannot notice that the server is gone."""

_PIECE = 1 << 16
"""Maximum bytes per read."""

_HEADER = 4
"""Bytes of the length in front of each answer."""

_LAST_XID = 2147483647

_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""The socket has nothing to read, or its send buffer is full."""

T = TypeVar("T")


class DirectConnection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """The connection of a client whose handler is a `DirectHandler`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._xid: int
        self._sending = threading.RLock()
        self._reading = threading.RLock()
        self._open = False
        """Whether any thread may send and read: set under both locks; a fault resets it under one."""
        self._broken = ""
        """Why the connection is unusable: a request was sent, or an answer read, only in part. Else empty."""
        self._arrived: bytearray | None = None
        """Bytes read so far of an incomplete answer; None while kazoo reads by itself."""
        self._taken = False
        """Whether a thread is reading until its own answer arrives."""
        self._ended = False
        """Whether the session is to end although the request to close it could not be sent."""
        self._collected: bytearray | None = None
        """The requests collected so far by `together`; None outside of it."""
        self._receiving: AbstractContextManager[object] = nullcontext()
        """Held while a thread receives: a lock with TLS, else nothing."""

    def _connect(self, *server: Any) -> Any:
        self._arrived = None
        timeouts = super()._connect(*server)
        if self._ended:
            raise ConnectionDropped("the session has ended")
        with self._reading, self._sending:
            self._receiving = self._sending if isinstance(self._socket, ssl.SSLSocket) else nullcontext()
            self._arrived, self._broken = bytearray(), ""
            self.handler.gate = Gate(self._socket, self._read_sock)
            self._open = True
        return timeouts

    def end_sharing(self) -> None:
        """Leave the socket to kazoo's thread alone, which may close it."""
        with self._reading, self._sending:
            self._open = False
            gate, self.handler.gate = self.handler.gate, None
            if gate is not None:
                gate.close()

    def send_now(self, request: Any, answer: Any) -> bool:
        """Send the request; False if kazoo's thread has to, after the requests that are queued already."""
        try:
            with self._sending:
                is_later = self._collected is None and (not self._open or self.client._queue)
                if is_later or _kind(request) in (Auth.type, None):
                    return False
                self._send_in_order(request, answer)
                return True
        except BaseException:
            if self._collected is None:
                _let_go(self._sending)
            raise

    def _send_in_order(self, request: Any, answer: Any) -> None:
        try:
            xid: int = (self._xid % _LAST_XID) + 1
            self._xid = xid
            content = b"".join((int_struct.pack(xid), int_struct.pack(request.type), request.serialize()))
            message = int_struct.pack(len(content)) + content
            answer.connection = self
            # before it is sent: another thread may read the answer at once
            self.client._pending.append((request, answer, xid))
            if self._collected is None:
                self._send_or_break(message)
            else:
                self._collected += message
        except BaseException:  # an answer may be expected for a request that was sent in part or not at all
            self._break("a thread was interrupted while it sent a request")
            raise

    def send_later(self, request: Any, answer: Any) -> None:
        """Have kazoo's thread send the request: now, or when it has connected."""
        self.client._queue.append((request, answer))
        # a request interrupted here is sent with the next one
        wakes = self._write_sock
        try:
            if wakes is not None:
                wakes.send(b"\0")
                return
        except OSError:
            pass  # closed by another thread
        if answer is not None:
            answer.set_exception(ConnectionClosedError("Connection has been closed"))

    def together(self, ask: Callable[[], T]) -> T:
        """Call `ask`, which must not wait for an answer, and send its requests in one piece."""
        try:
            with self._sending:
                if self._open and not self.client._queue:
                    return self._send_together(ask)
        except BaseException:
            _let_go(self._sending)
            raise
        return ask()  # without the lock: kazoo's thread needs it to make room for further requests

    def _send_together(self, ask: Callable[[], T]) -> T:
        try:
            self._collected = bytearray()
            return self._collect(ask)
        except BaseException:
            if self._collected is not None:
                self._collected = None
                self._break("a thread was interrupted before it sent its requests")
            raise

    def _collect(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        finally:
            if self._collected:
                self._send_or_break(self._collected)
            self._collected = None

    def _send_or_break(self, message: bytes | bytearray) -> None:
        try:
            self._send(message)
        except (OSError, ConnectionDropped, self.handler.timeout_exception) as error:
            self._break(f"a request was not sent: {error}")

    def _send(self, message: bytes | bytearray) -> None:
        try:
            sent = self._socket.send(message)
        except _NOT_NOW:
            sent = 0
        if sent < len(message):
            self._write(message[sent:], self.client._session_timeout / 1000)

    def _break(self, reason: str) -> None:
        """Mark the connection as unusable, and have kazoo's thread notice that and report the reason."""
        self._open, self._broken = False, reason
        shut(self)

    def end(self) -> None:
        """Prevent any further connection."""
        self._ended = True

    def read_until(self, answer: Any, seconds: float | None) -> None:
        """Read until the answer has arrived, for at most READ_TIME, unless another thread is reading."""
        if self._taken:
            return
        try:
            with self._reading:
                gate = self.handler.gate
                if self._open and gate is not None:
                    self._take(gate, answer, READ_TIME if seconds is None else min(seconds, READ_TIME))
        except BaseException:
            _let_go(self._reading)
            _let_go(self._sending)
            raise

    def _take(self, gate: Gate, answer: Any, seconds: float) -> None:
        try:
            self._taken = True
            gate.shut()
            self._read_until(answer, seconds)
            gate.open()
            self._taken = False
        except BaseException:  # an answer may have been read in part
            # a broken connection wakes kazoo's thread although the gate is shut
            self._break("a thread was interrupted while it read an answer")
            self._taken = False
            raise

    def _read_until(self, answer: Any, seconds: float) -> None:
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        deadline = time.monotonic() + seconds
        while self._open and not answer.ready():
            left = deadline - time.monotonic()
            if left <= 0 or not readable.poll(left * 1000):
                return
            try:
                self._read_answers(self.client._session_timeout / 1000)
            except ConnectionDropped as error:
                self._break(str(error))

    def _read_socket(self, read_timeout: float) -> Any:
        """Runs in kazoo's thread; another thread may already have read the pending bytes."""
        if self._arrived is None:
            return super()._read_socket(read_timeout)
        with self._reading:
            return self._read_answers(read_timeout)

    def _read_answers(self, read_timeout: float) -> Any:
        """Read the available bytes; kazoo's CLOSE_RESPONSE if they answer the end of the session."""
        arrived = self._arrived
        if arrived is None or self._broken:
            raise ConnectionDropped(self._broken)
        try:
            with self._receiving:
                piece = self._socket.recv(_PIECE)
        except _NOT_NOW:
            return None
        except OSError as error:
            raise ConnectionDropped(f"socket connection error: {error.strerror}") from error
        if not piece:
            raise ConnectionDropped("socket connection broken")
        arrived += piece
        response = None
        while response is None and _is_whole(arrived):
            response = self._read_answer(read_timeout)
        return response

    def _read_answer(self, read_timeout: float) -> Any:
        pending = self.client._pending
        _, first, xid = pending[0] if pending else (None, None, None)
        answered = int_struct.unpack_from(self._arrived, _HEADER)[0]
        if answered >= 0 and answered != xid:
            # a request was not sent, as a signal handler's exception had ended its thread
            raise ConnectionDropped(f"the answer to request {answered} came before that to {xid}")
        try:
            return super()._read_socket(read_timeout)
        except BaseException:
            if first is not None and not (pending and pending[0][1] is first):
                _wake(first)  # nobody else would
            raise

    def _read_header(self, timeout: float) -> tuple[Any, bytes, int]:
        if self._arrived is None:
            header, buffer, offset = super()._read_header(timeout)
            return header, buffer, offset
        end = _HEADER + int_struct.unpack_from(self._arrived)[0]
        content = bytes(memoryview(self._arrived)[_HEADER:end])
        del self._arrived[:end]
        header, offset = ReplyHeader.deserialize(content, 0)
        return header, content, offset

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Runs in kazoo's thread: send all queued requests, of which the end of the session is the last.

        kazoo's own method sends one request for each byte that wakes it. After a request without its byte,
        each byte would send the request before its own.
        """
        with self._reading, self._sending:
            self._read_sock.recv(_PIECE)
            queue = self.client._queue
            while queue:
                request, answer = queue[0]
                kind = _kind(request)
                if kind is None:
                    super()._send_request(read_timeout, connect_timeout)  # raises the fault
                if kind != Auth.type:
                    self._xid = (self._xid % _LAST_XID) + 1
                xid = AUTH_XID if kind == Auth.type else self._xid
                self._submit(request, connect_timeout, xid)
                queue.popleft()
                self.client._pending.append((request, answer, xid))
            if self.client._stopped.is_set():
                self._open = False  # kazoo's thread has to see the last answer

    def _send_ping(self, connect_timeout: float) -> None:
        with self._sending:
            super()._send_ping(connect_timeout)


def shut(connection: ConnectionHandler) -> None:
    """Shut down the socket and wake the threads that wait on it. `SSLSocket.shutdown` would end TLS first."""
    with suppress(OSError):
        if (connected := connection._socket) is not None:
            socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _kind(request: Any) -> int | None:
    """The type of a request; None for an error, which kazoo's tests pass in place of a request."""
    kind: int | None = getattr(request, "type", None)
    return kind


def _is_whole(arrived: bytearray) -> bool:
    return len(arrived) >= _HEADER and len(arrived) >= _HEADER + int_struct.unpack_from(arrived)[0]


def _let_go(lock: Any) -> None:
    """Release the lock if the caller, interrupted on its way out of a `with`, still holds it."""
    with suppress(RuntimeError):  # not held
        while True:
            lock.release()


def _wake(answer: Any) -> None:
    """Wake the thread that waits for an answer whose reader was interrupted."""
    if answer.ready():
        with answer._condition:
            answer._condition.notify_all()
    else:
        answer.set_exception(ConnectionLoss())
