import http.client
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pipeline.fixity import Digest, digest_file
from tools.demo import collection, source
from tools.demo.run import HARBOUR


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "ten.txt").write_bytes(b"0123456789")
    (tmp_path.parent / "secret.txt").write_text("not yours")
    with source.serving(tmp_path) as base:
        yield base


def ask(base: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=5)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), data


def test_a_whole_file_is_served_with_its_length_and_tag(served: str) -> None:
    status, headers, data = ask(served, "/ten.txt")

    assert (status, data) == (200, b"0123456789")
    assert headers["Content-Length"] == "10"
    assert headers["ETag"]
    assert headers["Last-Modified"]


def test_head_has_the_length_and_no_body(served: str) -> None:
    status, headers, data = ask(served, "/ten.txt", "HEAD")

    assert (status, headers["Content-Length"], data) == (200, "10", b"")


@pytest.mark.parametrize(
    ("asked", "data", "content_range"),
    [
        ("bytes=4-", b"456789", "bytes 4-9/10"),
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
    ],
)
def test_a_part_of_a_file_is_served(served: str, asked: str, data: bytes, content_range: str) -> None:
    status, headers, found = ask(served, "/ten.txt", Range=asked)

    assert (status, found, headers["Content-Range"]) == (206, data, content_range)


def test_a_part_behind_the_end_is_refused(served: str) -> None:
    status, headers, _ = ask(served, "/ten.txt", Range="bytes=10-")

    assert (status, headers["Content-Range"]) == (416, "bytes */10")


@pytest.mark.parametrize("path", ["/none.txt", "/", "/../secret.txt", "/%2e%2e/secret.txt"])
def test_nothing_else_is_served(served: str, path: str) -> None:
    assert ask(served, path)[0] == 404


def rows(manifest: Path) -> list[list[str]]:
    lines = manifest.read_text().splitlines()
    return [[part.strip() for part in line.split("|")] for line in lines if line and line[0] != "#"]


def test_the_samples_manifests_declare_what_the_files_are() -> None:
    declared = [row for path in sorted(HARBOUR.glob("*/object.checkm")) for row in rows(path)]
    assert len(declared) >= 9
    for url, algorithm, value, size, *_ in declared:
        path = HARBOUR / url.removeprefix("{base}/")
        if algorithm:
            digest_file(path, [algorithm]).check(Digest(algorithm=algorithm, value=value), url)
        if size:
            assert path.stat().st_size == int(size), url


def test_a_prepared_collection_has_addresses_and_containers(tmp_path: Path) -> None:
    collection.prepare(HARBOUR, tmp_path / "out", "http://127.0.0.1:1")

    listed = [row[0] for path in (tmp_path / "out").rglob("*.checkm") for row in rows(path)]
    for url in listed:
        assert (tmp_path / "out" / url.removeprefix("http://127.0.0.1:1/")).is_file(), url
    with zipfile.ZipFile(tmp_path / "out" / "containers" / "harbour-master.zip") as archive:
        assert "letters/1911-05-02.txt" in archive.namelist()
