"""The digests that a browser computes: those of hashlib, of a file of any size, without keeping its bytes."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from pipeline.principal import Role
from tests.support.browser import Visitor, chromium, visitor
from tests.support.web import Web, new_token

LARGE = 200 << 20

DIGESTS = """
async () => {
  const { startDigests } = await import("/static/deposit/digests.js");
  const digests = startDigests();
  const files = [...document.getElementById("file").files];
  const note = (_, read) => { window.read = read; };
  const found = await Promise.all(files.map((file) => digests.of(file, note)));
  digests.stop();
  return found;
}
"""


@pytest.fixture
def dora(web: Web) -> Iterator[Visitor]:
    with chromium() as browser, visitor(browser, web.url) as opened:
        opened.log_in(new_token(web.context.settings, uuid4().hex, Role.DEPOSITOR, ["demo"]))
        opened.open("/deposits/new")
        yield opened


def digests_of(dora: Visitor, *files: Path) -> list[str | None]:
    dora.page.locator("#file").evaluate("input => input.multiple = true")
    dora.page.locator("#file").set_input_files(files)
    found: list[str | None] = dora.page.evaluate(DIGESTS)
    return found


def most_memory() -> int:
    """The most bytes that a browser process of this test has had in memory at any moment."""
    children = {os.getpid()}
    most = 0
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda folder: int(folder.name)):
        try:
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        except FileNotFoundError:
            continue
        if int(status["PPid"]) in children:
            children.add(int(folder.name))
            most = max(most, 1024 * int(status.get("VmHWM", "0 kB").split()[0]))
    return most


def test_the_digests_of_a_browser_are_those_of_hashlib_and_need_no_more_memory_for_a_large_file(
    dora: Visitor, tmp_path: Path
) -> None:
    bodies = {"empty": b"", "piece": os.urandom(4 << 20), "more": os.urandom((4 << 20) + 1)}
    for name, body in bodies.items():
        (tmp_path / name).write_bytes(body)
    large = tmp_path / "large"
    with large.open("wb") as stream:
        for _ in range(LARGE >> 20):
            stream.write(os.urandom(1 << 20))

    small = [tmp_path / name for name in bodies]
    assert digests_of(dora, *small) == [hashlib.sha512(body).hexdigest() for body in bodies.values()]
    before = most_memory()
    with large.open("rb") as stream:
        expected = hashlib.file_digest(stream, "sha512").hexdigest()

    assert digests_of(dora, large) == [expected]
    assert dora.page.evaluate("read") == LARGE

    assert most_memory() - before < LARGE / 2
    assert dora.complaints == []


def test_without_webassembly_or_workers_no_digest_is_invented(dora: Visitor, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    dora.page.add_init_script("delete window.Worker")
    dora.open("/deposits/new")

    assert digests_of(dora, tmp_path / "a") == [None]
