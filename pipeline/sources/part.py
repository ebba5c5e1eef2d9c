"""An unfinished download: its bytes so far, their digests, and which state of the source they are of."""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from queue import Queue

from pydantic import BaseModel, ConfigDict

from pipeline.attempt import Attempt
from pipeline.errors import ArklineError
from pipeline.file_system import is_full, make_below, start_writing, write_all, write_file
from pipeline.fixity import OF_RECORD, READ_CHUNK, Digest, Digester
from pipeline.http.retry import http_date
from pipeline.http.transfer import Response
from pipeline.sources.response import coding_of, content_length, offered_name, whole_size
from pipeline.working_storage.capacity import full_waits

FROM = ".from"
"""The end of the name of the file beside a part."""

HELD = 128 << 10
"""Bytes of a new file that are in memory, at most, until the file is whole. Nobody continues so few: to write
them to a part would cost three folders and the removal of these."""

PIECES_AHEAD = 16
"""Pieces that wait for the thread at most, of READ_CHUNK bytes at most."""

WRITE_AHEAD = 32 << 20
"""Bytes after which the system is asked to begin to write them to the disk."""

VALIDATOR_LENGTH = 1000
"""Characters of an ETag or a date that are kept, and sent in If-Range."""


class Origin(BaseModel):
    """Which bytes a source offered: saved beside a part, so that a later try can request the rest."""

    model_config = ConfigDict(frozen=True)
    url: str
    total: int | None = None
    etag: str = ""
    last_modified: str = ""
    name: str = ""
    """The name of the file, as the source states it."""
    is_web_page: bool = False
    """The bytes, or their type, are those of HTML."""
    coding: str = ""
    """The content coding of the bytes, which was not accepted."""
    noted_size: int = 0
    noted_sha512: str = ""
    """Of the bytes on the disk when an attempt ended in order, for the attempt that continues."""

    @property
    def validator(self) -> str:
        """What `If-Range` may name: a strong ETag, else a date; empty if the rest cannot be requested."""
        return self.etag or self.last_modified

    def may_be_continued(self, digest: Digest | None) -> bool:
        """True if another attempt may request the rest of a file with this declared digest.

        Without a digest only a strong ETag proves that the rest fits: two contents may have one date.
        """
        return bool(self.etag or (digest and self.validator))

    def same(self, other: "Origin") -> bool:
        """True unless the two answers are known to be of different bytes."""
        pairs = (
            (self.etag, other.etag),
            (self.last_modified, other.last_modified),
            (self.total, other.total),
        )
        return all(mine in (None, "", theirs) or theirs in (None, "") for mine, theirs in pairs)


def origin_of(url: str, response: Response) -> Origin:
    """What the headers of a 200 or 206 say about the whole file."""
    etag = response.headers.get("ETag", "").strip()
    modified = response.headers.get("Last-Modified", "").strip()
    total = content_length(response)
    if response.status == 206:
        total = whole_size(response, url)
    return Origin(
        url=url,
        total=total,
        name=offered_name(response),
        coding=coding_of(response),
        etag=etag if etag.startswith('"') and _can_be_sent_back(etag) else "",
        last_modified=modified if _settled(modified, response.headers.get("Date", "")) else "",
    )


def _settled(modified: str, date: str) -> bool:
    """True if the file was at least a second old, so that no second change hides (RFC 9110, 8.8.2.2)."""
    changed, answered = http_date(modified), http_date(date)
    if changed is None or answered is None or not _can_be_sent_back(modified):
        return False
    return answered - changed >= timedelta(seconds=1)


def _can_be_sent_back(validator: str) -> bool:
    return len(validator) <= VALIDATOR_LENGTH and validator.isprintable()


class StreamDigester:
    """As Digester. The thread starts once the stream has READ_CHUNK bytes: a small file is not worth one.

    One thread calls it. `finish` it: no thread outlives its download.
    """

    def __init__(self, algorithms: Iterable[str] = (OF_RECORD,)) -> None:
        self._digester = Digester(algorithms)
        self._thread: threading.Thread | None = None
        self.size = 0

    def update(self, data: bytes) -> None:
        self.size += len(data)
        if self.size <= READ_CHUNK:
            self._digester.update(data)
            return
        if self._thread is None:
            self._waiting: Queue[bytes | None] = Queue(PIECES_AHEAD)
            self._thread = threading.Thread(target=self._work, name="digests of a download", daemon=True)
            self._thread.start()
        self._waiting.put(data)

    def finish(self) -> None:
        """Return once all pieces are in the digests; more may follow."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def value(self, name: str = OF_RECORD) -> str:
        self.finish()
        return self._digester.value(name)

    def check(self, declared: Digest, name: str) -> None:
        """As Digester.check."""
        self.finish()
        self._digester.check(declared, name)

    def _work(self) -> None:
        while (data := self._waiting.get()) is not None:
            self._digester.update(data)


class Part:
    """The unfinished file at `path`; made by `open_part`."""

    def __init__(self, path: Path, algorithms: Iterable[str], draft: Path | None) -> None:
        """`draft` as in Download: with one, a file is made at `path` once there are more than HELD bytes."""
        self.path = path
        self.origin: Origin | None = None
        self._draft = draft
        self._held: list[bytes] = []
        """All bytes, until there is a file."""
        self._descriptor = None if draft else _open(path, 0)
        self._has_bytes = self._descriptor is not None and os.fstat(self._descriptor).st_size > 0
        """The file may have bytes."""
        self._origin_saved = draft is None and origin_path(path).exists()
        self._algorithms = tuple(algorithms)
        self.digests = StreamDigester(self._algorithms)

    @property
    def size(self) -> int:
        return self.digests.size

    @property
    def complete(self) -> bool:
        """True if every byte that the source promised is here."""
        return self.origin is not None and self.origin.total == self.size

    def continue_from(self, url: str, attempt: Attempt, *, declared: bool) -> None:
        """Use the bytes that an earlier try left, if it is known of which file they are the beginning.

        Without a declared digest, which judges the whole later, they must be those of their note.
        """
        origin = saved_origin(self.path) if self._origin_saved else None
        if origin is None or origin.url != url or not origin.validator:
            self.restart()
            return
        with self.path.open("rb") as earlier:
            while chunk := earlier.read(READ_CHUNK):
                attempt.check()
                self.digests.update(chunk)
        noted = (origin.noted_size, origin.noted_sha512)
        if not declared and origin.noted_sha512 and noted != (self.size, self.digests.value()):
            self.restart()  # damaged, or continued without a new note
            return
        self.origin = origin

    def restart(self) -> None:
        self._held.clear()
        if self._descriptor is not None and self._has_bytes:
            os.ftruncate(self._descriptor, 0)
            self._has_bytes = False
        if self.digests.size:
            self.digests.finish()
            self.digests = StreamDigester(self._algorithms)
        self.origin = None
        self._forget_origin()

    def discard(self) -> None:
        self.restart()
        self.path.unlink(missing_ok=True)

    def append(self, chunk: bytes) -> None:
        before = self.digests.size
        if self._descriptor is None and before + len(chunk) <= HELD:
            self._held.append(chunk)
            self.digests.update(chunk)
            return
        descriptor = self._open_file()
        self._has_bytes = True
        write_all(descriptor, chunk)
        self.digests.update(chunk)
        if before // WRITE_AHEAD < self.digests.size // WRITE_AHEAD:
            start_writing(descriptor)
        # Only a large file is worth a second file that says where it came from.
        if before < READ_CHUNK <= self.digests.size and self.origin and not self.complete:
            self._origin_saved = True
            origin_path(self.path).write_text(self.origin.model_dump_json())

    def _open_file(self) -> int:
        """The descriptor of the file at `path`, which gets the bytes that were in memory."""
        if self._descriptor is None:
            assert self._draft is not None
            self._descriptor = _open(self.path, os.O_EXCL, self._draft.parent)
            write_all(self._descriptor, b"".join(self._held))
            self._held.clear()
        return self._descriptor

    def close(self) -> None:
        self.digests.finish()
        if self._descriptor is not None:
            os.close(self._descriptor)

    def note(self) -> None:
        """Note what is here, for the attempt that continues; without a note it starts anew."""
        if self.origin is None or self.size < READ_CHUNK or self.complete:
            return
        with suppress(OSError):
            os.fsync(self._open_file())
            noted = {"noted_size": self.size, "noted_sha512": self.digests.value()}
            origin_path(self.path).write_text(self.origin.model_copy(update=noted).model_dump_json())
            self._origin_saved = True

    def publish(self, target: Path) -> None:
        """Put the bytes at `target`, which is whole or absent while this machine runs.

        They are not synced: who relies on them after a crash reads them first, or syncs all files together.
        """
        path = self.path
        if self._descriptor is None and self._draft is not None:
            path = self._draft
            write_file(path, b"".join(self._held))
        try:
            path.replace(target)
        except FileNotFoundError:
            target.parent.mkdir(exist_ok=True)
            path.replace(target)
        self._forget_origin()

    def _forget_origin(self) -> None:
        if self._origin_saved:
            origin_path(self.path).unlink(missing_ok=True)
            self._origin_saved = False


def origin_path(path: Path) -> Path:
    """The file that says from where the part at `path` comes."""
    return path.with_name(f"{path.name}{FROM}")


def saved_origin(path: Path) -> Origin | None:
    """From where the part at `path` comes; None if that is not known."""
    try:
        return Origin.model_validate_json(origin_path(path).read_bytes())
    except (OSError, ValueError):
        return None


def _open(path: Path, flags: int, existing: Path | None = None) -> int:
    """`existing`: a folder below which folders are made; None: the folder of the file's folder."""
    flags |= os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        make_below(path.parent, existing or path.parent.parent)
        return os.open(path, flags, 0o666)


@contextmanager
def open_part(path: Path, algorithms: Iterable[str], draft: Path | None = None) -> Iterator[Part]:
    """Open the part at `path`, with what is there already; a full disk is a transient failure.

    `draft` as in Download: nothing is at `path`, and the part need not be looked for.
    """
    with full_waits(f"fetching {path.name}"):
        try:
            part = Part(path, algorithms, draft)
            try:
                yield part
            except ArklineError:
                part.note()
                raise
            finally:
                part.close()
        except OSError as error:
            if is_full(error):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                    origin_path(path).unlink(missing_ok=True)
                    if draft:
                        draft.unlink(missing_ok=True)
            raise
