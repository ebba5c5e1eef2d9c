"""Certificates in the Secrets of a cluster, whose API is served here."""

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from operations.certificates import authority, secrets
from pipeline.errors import ServiceUnreachable

SERVERS = {"zookeeper": ("zk-0.zk",), "redis": ("redis",)}


@dataclass
class Cluster:
    """Secrets by name, and the requests that changed them; a stale `resourceVersion` is refused."""

    url: str = ""
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    refused: str = ""
    """The Secret that may not be written."""

    def file(self, place: str, name: str) -> bytes:
        return base64.b64decode(self.secrets[f"site-certificates-{place}"]["data"][name])

    def answer(self, method: str, name: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        if method == "GET":
            return (200, self.secrets[name]) if name in self.secrets else (404, {})
        assert body is not None
        name = body["metadata"]["name"]
        version = self.secrets.get(name, {}).get("metadata", {}).get("resourceVersion")
        if name == self.refused or body["metadata"].get("resourceVersion") != version:
            return 409, {}
        body["metadata"]["resourceVersion"] = str(int(version or 0) + 1)
        self.secrets[name] = body
        self.changes.append(f"{method} {name}")
        return 200, body


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    own = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            assert self.headers["Authorization"] == "Bearer the-token"
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            name = self.path.removeprefix("/api/v1/namespaces/ingest/secrets").removeprefix("/")
            code, said = own.answer(self.command, name, json.loads(body) if body else None)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        do_GET = do_PUT = do_POST = handle_any  # noqa: N815 - the names of http.server

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        own.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield own
        server.shutdown()
        thread.join()


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    for name, text in (("token", "the-token"), ("namespace", "ingest"), ("ca.crt", "")):
        (tmp_path / name).write_text(text)
    return tmp_path


def renew(cluster: Cluster, pod: Path, *, at_once: bool = False) -> list[str]:
    times = authority.Lifetimes()
    return secrets.renew("site", SERVERS, times, at_once=at_once, api=cluster.url, pod=pod)


def test_secrets_are_made_once_in_the_order_of_their_use_and_renewed_in_place(
    cluster: Cluster, pod: Path
) -> None:
    renew(cluster, pod)
    order = [f"site-certificates-{place}" for place in ("authority", "trust", "zookeeper", "redis")]
    assert cluster.changes == [f"POST {name}" for name in order]
    assert set(cluster.secrets["site-certificates-redis"]["data"]) == {"authority.pem", "server.pem"}
    trusted, before = cluster.file("trust", "authority.pem"), cluster.file("redis", "server.pem")
    assert b"PRIVATE KEY" not in trusted

    assert renew(cluster, pod) == []
    assert renew(cluster, pod, at_once=True) == ["zookeeper/server.pem", "redis/server.pem"]
    assert cluster.changes[4:] == [f"PUT {name}" for name in order[2:]]
    assert cluster.file("trust", "authority.pem") == trusted
    assert cluster.file("redis", "server.pem") != before


def test_a_renewal_that_the_cluster_refuses_half_way_is_completed_by_the_next_one(
    cluster: Cluster, pod: Path
) -> None:
    cluster.refused = "site-certificates-zookeeper"
    with pytest.raises(ServiceUnreachable, match="refuses POST"):
        renew(cluster, pod)
    cluster.refused = ""

    assert renew(cluster, pod) == [
        "zookeeper/authority.pem",
        "redis/authority.pem",
        "zookeeper/server.pem",
        "redis/server.pem",
    ]
    assert cluster.file("redis", "authority.pem") == cluster.file("trust", "authority.pem")
