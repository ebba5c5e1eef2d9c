"""Free ports on loopback."""

import random
import socket

HOST = "127.0.0.1"
LOWEST, HIGHEST = 20000, 32000
"""Below the range from which Linux takes ports for outgoing connections (32768 to 60999): a port that is
free now is not given to somebody's connection before the server that we start has bound it."""


def free_ports(count: int) -> tuple[int, ...]:
    """That many different ports; all are bound at the same time while we look."""
    taken: list[socket.socket] = []
    try:
        while len(taken) < count:
            candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                candidate.bind((HOST, random.randint(LOWEST, HIGHEST)))  # noqa: S311 - no secret
            except OSError:
                candidate.close()
            else:
                taken.append(candidate)
        return tuple(each.getsockname()[1] for each in taken)
    finally:
        for each in taken:
            each.close()


def ask(port: int, question: bytes, wanted: bytes, seconds: float = 0.3, host: str = HOST) -> bool:
    """Whether the server on `port` answers `question` with something that has `wanted` in it.

    The time-out is short on purpose: a server that accepts a connection while it boots may never answer
    on it, and the next try will be answered at once.
    """
    answer = b""
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            connection.sendall(question)
            while wanted not in answer and (piece := connection.recv(4096)):
                answer += piece
    except OSError:
        return False
    return wanted in answer
