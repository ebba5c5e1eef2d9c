"""How a worker and the processes that read foreign bytes speak: a request to them, lines of JSON back.

A request is two lengths, JSON, and a body. Nothing else is loaded, because each of the processes needs this.
"""

import json
import os
import struct
from typing import Any

HEADER = struct.Struct(">IQ")
"""Bytes of the request, and bytes of its body."""

ALIVE_INTERVAL = 1.0
"""Seconds between two signs of life."""

INPUT, OUTPUT = 0, 1
"""The descriptors of the process."""


def request(content: object, body: bytes) -> bytes:
    """What precedes the body."""
    data = json.dumps(content).encode()
    return HEADER.pack(len(data), len(body)) + data


def line(kind: str, *values: Any) -> bytes:
    return json.dumps([kind, *values], separators=(",", ":")).encode() + b"\n"


def read(size: int) -> bytes:
    """So many bytes of the input; EOFError at its end, because the worker has ended."""
    data = bytearray()
    while len(data) < size:
        piece = os.read(INPUT, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
