"""Holds every packet of a network namespace back for a time: `python -m tools.chaos.hosts.relay SECONDS`.

The packets wait in the kernel's queue 0 (iptables' target NFQUEUE); this program lets each pass when its time
has come. Standard library only. Format: linux/netfilter/nfnetlink_queue.h.
"""

import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 3 << 8
_PACKET, _VERDICT, _CONFIG = range(3)
_REQUEST = 1
_BIND, _COPY_META = 1, 1
_COMMAND, _PARAMETERS, _LENGTH = 1, 2, 3
_HEADER = 1
_VERDICT_HEADER = 2
_ACCEPT = 1
_QUEUE = 0
MOST = 20_000
"""Packets that may wait."""


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def _message(kind: int, *attributes: bytes) -> bytes:
    body = struct.pack("!BBH", socket.AF_UNSPEC, 0, _QUEUE) + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), _SUBSYSTEM | kind, _REQUEST, 0, 0) + body


def _packet_ids(received: bytes) -> list[int]:
    """The ids of the packets that the kernel asks about."""
    ids = []
    while len(received) >= 20:
        length, kind = struct.unpack_from("=IH", received)
        if kind == _SUBSYSTEM | _PACKET:
            ids += _ids_in(received[20:length])
        received = received[(length + 3) & ~3 :]
    return ids


def _ids_in(attributes: bytes) -> list[int]:
    while len(attributes) >= 4:
        length, kind = struct.unpack_from("=HH", attributes)
        if kind == _HEADER:
            return [struct.unpack_from("!I", attributes, 4)[0]]
        attributes = attributes[(length + 3) & ~3 :]
    return []


def relay(seconds: float) -> None:
    """Delay packets until the program is asked to end; those that wait then pass at once."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as queue:
        queue.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        queue.bind((0, 0))
        queue.send(_message(_CONFIG, _attribute(_COMMAND, struct.pack("!BBH", _BIND, 0, 0))))
        queue.send(_message(_CONFIG, _attribute(_PARAMETERS, struct.pack("!IB", 0, _COPY_META))))
        queue.send(_message(_CONFIG, _attribute(_LENGTH, struct.pack("!I", MOST))))
        waiting: deque[tuple[float, int]] = deque()
        try:
            _delay(queue, seconds, waiting)
        finally:
            for _, packet in waiting:
                _let_pass(queue, packet)


def _delay(queue: socket.socket, seconds: float, waiting: deque[tuple[float, int]]) -> None:
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        if select.select([queue], [], [], wait)[0]:
            with suppress(OSError):  # ENOBUFS: the kernel's queue is full and has dropped packets
                due = time.monotonic() + seconds
                waiting.extend((due, packet) for packet in _packet_ids(queue.recv(1 << 16)))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _let_pass(queue, waiting.popleft()[1])


def _let_pass(queue: socket.socket, packet: int) -> None:
    queue.send(_message(_VERDICT, _attribute(_VERDICT_HEADER, struct.pack("!II", _ACCEPT, packet))))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    relay(float(sys.argv[1]))
