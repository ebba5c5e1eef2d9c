"""An unfinished download: its bytes so far, their digests, and which state of the source they are of."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import BinaryIO

import requests
from pydantic import BaseModel, ConfigDict

from pipeline.attempt import Attempt
from pipeline.fixity import READ_CHUNK, Digester
from pipeline.sources.response import content_length
from pipeline.working_storage.capacity import full_is_transient, is_full


class Origin(BaseModel):
    """Which bytes a source offered: saved beside a part, so that a later try can request the rest."""

    model_config = ConfigDict(frozen=True)
    url: str
    total: int | None = None
    etag: str = ""
    last_modified: str = ""

    @property
    def validator(self) -> str:
        """What `If-Range` may name: a strong ETag, else a date; empty if the rest cannot be requested."""
        return self.etag or self.last_modified

    def same(self, other: "Origin") -> bool:
        """True unless the two answers are known to be of different bytes."""
        pairs = (
            (self.etag, other.etag),
            (self.last_modified, other.last_modified),
            (self.total, other.total),
        )
        return all(mine in (None, "", theirs) or theirs in (None, "") for mine, theirs in pairs)


def origin_of(url: str, response: requests.Response) -> Origin:
    """What the headers of a 200 or 206 say about the whole file."""
    etag = response.headers.get("ETag", "").strip()
    modified = response.headers.get("Last-Modified", "").strip()
    total = content_length(response)
    if response.status_code == 206:
        stated = response.headers.get("Content-Range", "").rpartition("/")[2].strip()
        total = int(stated) if stated.isascii() and stated.isdigit() else None
    return Origin(
        url=url,
        total=total,
        etag=etag if etag.startswith('"') else "",
        last_modified=modified if _settled(modified, response.headers.get("Date", "")) else "",
    )


def _settled(modified: str, date: str) -> bool:
    """True if the file was at least a second old, so that no second change hides (RFC 9110, 8.8.2.2)."""
    try:
        return parsedate_to_datetime(date) - parsedate_to_datetime(modified) >= timedelta(seconds=1)
    except (ValueError, TypeError):
        return False


class Part:
    """The unfinished file at `path`; made by `open_part`."""

    def __init__(self, path: Path, stream: BinaryIO, algorithms: Iterable[str]) -> None:
        self.path = path
        self.origin: Origin | None = None
        self._stream = stream
        self._origin_saved = origin_path(path).exists()
        self._algorithms = tuple(algorithms)
        self.digests = Digester(self._algorithms)

    @property
    def size(self) -> int:
        return self.digests.size

    @property
    def complete(self) -> bool:
        """True if every byte that the source promised is here."""
        return self.origin is not None and self.origin.total == self.size

    def continue_from(self, url: str, attempt: Attempt) -> None:
        """Use the bytes that an earlier try left, if it is known of which file they are the beginning."""
        try:
            origin = (
                Origin.model_validate_json(origin_path(self.path).read_bytes())
                if self._origin_saved
                else None
            )
        except (OSError, ValueError):
            origin = None
        if origin is None or origin.url != url or not origin.validator:
            self.restart()
            return
        with self.path.open("rb") as earlier:
            while chunk := earlier.read(READ_CHUNK):
                attempt.check()
                self.digests.update(chunk)
        self.origin = origin

    def restart(self) -> None:
        if self._stream.tell():
            self._stream.seek(0)
            self._stream.truncate()
        self.digests = Digester(self._algorithms)
        self.origin = None
        self._forget_origin()

    def discard(self) -> None:
        self.restart()
        self.path.unlink(missing_ok=True)

    def append(self, chunk: bytes) -> None:
        self._stream.write(chunk)
        before = self.digests.size
        self.digests.update(chunk)
        # Only a large file is worth a second file that says where it came from.
        if before < READ_CHUNK <= self.digests.size and self.origin and not self.complete:
            self._origin_saved = True
            origin_path(self.path).write_text(self.origin.model_dump_json())

    def publish(self, target: Path) -> None:
        """Make the bytes durable and put them at `target`, which is whole or absent at any moment."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        target.parent.mkdir(parents=True, exist_ok=True)
        self.path.replace(target)
        self._forget_origin()

    def _forget_origin(self) -> None:
        if self._origin_saved:
            origin_path(self.path).unlink(missing_ok=True)
            self._origin_saved = False


def origin_path(path: Path) -> Path:
    """The file that says from where the part at `path` comes."""
    return path.with_name(f"{path.name}.from")


@contextmanager
def open_part(path: Path, algorithms: Iterable[str]) -> Iterator[Part]:
    """Open the part at `path`, with what is there already; a full disk is a transient failure."""
    with full_is_transient(f"fetching {path.name}"):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as stream:
                yield Part(path, stream, algorithms)
        except OSError as error:
            if is_full(error):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                    origin_path(path).unlink(missing_ok=True)
            raise
