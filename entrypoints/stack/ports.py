"""Free ports on loopback."""

import random
import socket

HOST = "127.0.0.1"
LOWEST, HIGHEST = 20000, 32000
"""Below the range from which Linux takes ports for outgoing connections (32768 to 60999): a port that is
free now is not given to another program's connection before our server has bound it."""


def free_ports(count: int) -> tuple[int, ...]:
    """Different free ports; all of them are bound at the same time during the search."""
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
        return tuple(taken_socket.getsockname()[1] for taken_socket in taken)
    finally:
        for taken_socket in taken:
            taken_socket.close()


def ask(port: int, question: bytes, expected: bytes, seconds: float = 0.3, host: str = HOST) -> bool:
    """Whether the server on `port` answers `question` with bytes that contain `expected`.

    The time-out is short on purpose: a server that accepts a connection while it starts may never answer
    on that connection, but answers the next one at once.
    """
    answer = b""
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            connection.sendall(question)
            while expected not in answer and (piece := connection.recv(4096)):
                answer += piece
    except OSError:
        return False
    return expected in answer
