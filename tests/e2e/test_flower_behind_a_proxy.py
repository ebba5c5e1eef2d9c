"""Flower below a prefix of a site: its pages, its static files and its login, through a reverse proxy."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

from entrypoints.stack.child import HOST, ask, free_ports
from tests.support.fleet import Fleet
from tests.support.processes import await_ready

PREFIX = "/flower"
LOGIN = ("me", "secret")


@contextmanager
def reverse_proxy(port: int) -> Iterator[str]:
    """The address of a site that passes on what is below PREFIX, with its path as it is; 404 for the rest."""

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(404)
                return
            passed = {name: value for name, value in self.headers.items() if name == "Authorization"}
            behind = requests.get(
                f"http://{HOST}:{port}{self.path}", headers=passed, timeout=60, allow_redirects=False
            )
            self.send_response(behind.status_code)
            for name in ("Content-Type", "Location", "WWW-Authenticate"):
                if name in behind.headers:
                    self.send_header(name, behind.headers[name])
            self.send_header("Content-Length", str(len(behind.content)))
            self.end_headers()
            self.wfile.write(behind.content)

    with ThreadingHTTPServer((HOST, 0), Site) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            yield f"http://{HOST}:{site.server_port}"
        finally:
            site.shutdown()
            thread.join()


def test_the_pages_the_static_files_and_the_login_of_flower_are_below_its_prefix(fleet: Fleet) -> None:
    (port,) = free_ports(1)
    fleet.extra = {"FLOWER_BASIC_AUTH": ":".join(LOGIN)}
    flower = fleet.start(
        "flower", "-m", "arkline", "flower", "--port", str(port), "--url-prefix", f"{PREFIX}/", wait=False
    )
    request = f"GET {PREFIX}/healthcheck HTTP/1.0\r\n\r\n".encode()
    await_ready(flower, partial(ask, port, request, b" 200 OK", seconds=1))

    with reverse_proxy(port) as site:
        stranger = requests.get(f"{site}{PREFIX}/workers", timeout=60)
        page = requests.get(f"{site}{PREFIX}/workers", auth=LOGIN, timeout=60)
        named = set(re.findall(r'(?:href|src)="(/[^"#]*)"', page.text))
        files = [path for path in named if "/static/" in path]
        statuses = {path: requests.get(f"{site}{path}", auth=LOGIN, timeout=60).status_code for path in files}

    assert (stranger.status_code, page.status_code) == (401, 200)
    assert stranger.headers["WWW-Authenticate"].startswith("Basic")
    assert files
    assert {path for path in named if not path.startswith(f"{PREFIX}/")} == set()
    assert set(statuses.values()) == {200}
