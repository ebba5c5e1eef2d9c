import socket
import threading
from pathlib import Path

from tests.servers.http_source import HttpSource
from tests.servers.proxy import HOST, Proxy

CONNECTIONS = 20


def test_a_connection_that_ended_leaves_no_open_socket() -> None:
    with HttpSource() as source, Proxy(source.port) as proxy:
        source.put("/a", b"alpha")
        before = len(list(Path("/dev/fd").iterdir()))
        for _ in range(CONNECTIONS):
            with socket.create_connection((HOST, proxy.port)) as client:
                client.sendall(b"GET /a HTTP/1.0\r\n\r\n")
                while client.recv(4096):
                    pass
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and "_serve" in thread.name:
                thread.join(30)
        after = len(list(Path("/dev/fd").iterdir()))

    # other threads of this process may open a file meanwhile
    assert after - before < CONNECTIONS
