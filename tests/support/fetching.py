"""What the tests of downloads share: a body of several pieces, an attempt that can be ended."""

import hashlib
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

from pipeline.attempt import Attempt, CheckedAttempt
from pipeline.fixity import Digest
from pipeline.outcome import AttemptOver
from pipeline.settings import Settings
from pipeline.sources.download import Download
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.limits import SourceTimeouts

BODY = bytes(range(256)) * 20_000  # 5 MB: several pieces


def sha256(data: bytes) -> Digest:
    return Digest(algorithm="sha256", value=hashlib.sha256(data).hexdigest())


class DownloadFactory:
    """Downloads into the test's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = folder / "producer" / "a.bin"
        self.part = folder / "attempt" / "a.bin.part"
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, url: str, digest: Digest | None = None, size: int | None = None) -> Download:
        return Download(url, self.target, self.part, digest, size)


class PartSize:
    """An event that is set once the part has this many bytes."""

    def __init__(self, part: Path, size: int) -> None:
        self.part, self.size = part, size

    def is_set(self) -> bool:
        return self.part.exists() and self.part.stat().st_size >= self.size


def over_after(over: threading.Event | PartSize) -> Attempt:
    """The attempt ends when `over` is set."""

    def check() -> None:
        if over.is_set():
            raise AttemptOver("the lock is lost")

    return CheckedAttempt(check)


def assert_downloaded(a_download: DownloadFactory, body: bytes = BODY) -> None:
    assert a_download.target.read_bytes() == body
    assert not list(a_download.part.parent.iterdir())


def impatient(**overrides: Any) -> HttpFetcher:
    """A fetcher that may use loopback and hardly waits between two tries."""
    chosen = {"allow_networks": "127.0.0.0/8", "fetch_tries": 3, "first_pause": 0.01, **overrides}
    timeouts = {
        field.name: chosen.pop(field.name) for field in fields(SourceTimeouts) if field.name in chosen
    }
    return HttpFetcher(Settings(**chosen), SourceTimeouts(**timeouts))
