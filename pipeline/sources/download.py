"""The download of one file: its limits, its bytes so far with their digests, and the complete file.

An unfinished download records which version of the source its bytes belong to. A file of an upload is copied
from the site's folder and checked like a download.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from queue import Queue
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict

from pipeline import causes
from pipeline.attempt import Attempt, Progress
from pipeline.errors import ArklineError
from pipeline.file_system import is_full, make_below, start_writing, write_all, write_file
from pipeline.fixity import OF_RECORD, READ_CHUNK, Digest, Digester, DigestMismatch, ignore, size_and_sha512
from pipeline.http.service import http_date
from pipeline.http.transfer import Response
from pipeline.http.urls import place_of, redact_url
from pipeline.names import is_upload, quote_name
from pipeline.outcome import StepFailed, content, system, transient
from pipeline.sources.response import coding_of, content_length, offered_name, whole_size
from pipeline.states import FailureKind
from pipeline.uploads.stored import StoredUpload, faults, locate
from pipeline.working_storage.capacity import no_room

FROM = ".from"
"""Suffix of the file beside a part that records the part's origin."""

HELD = 128 << 10
"""Maximum bytes of a new file that are held in memory until the file is complete. So few bytes are not worth
continuing: writing them to a part would cost the creation and removal of three folders."""

PIECES_AHEAD = 16
"""Maximum chunks, of at most READ_CHUNK bytes, that wait for the thread."""

WRITE_AHEAD = 32 << 20
"""Bytes after which the system is asked to start writing them to disk."""

VALIDATOR_LENGTH = 1000
"""Maximum characters of an ETag or a date that is saved and sent in If-Range."""


class Origin(BaseModel):
    """The identity of a source's bytes, saved beside a part, so that a later try can request the rest."""

    model_config = ConfigDict(frozen=True)
    url: str
    total: int | None = None
    etag: str = ""
    last_modified: str = ""
    name: str = ""
    """The name of the file, as the source states it."""
    is_web_page: bool = False
    """Whether the bytes or their content type are HTML."""
    coding: str = ""
    """The content coding of the bytes, although none was accepted."""
    noted_size: int = 0
    noted_sha512: str = ""
    """Size and digest of the bytes on disk when an attempt ended properly, for the attempt that continues."""

    @property
    def validator(self) -> str:
        """The value for `If-Range`: a strong ETag, else a date; empty if the rest cannot be requested."""
        return self.etag or self.last_modified

    def may_be_continued(self, digest: Digest | None) -> bool:
        """True if another attempt may request the rest of a file with this declared digest.

        Without a digest only a strong ETag proves that the rest fits: two contents may have the same date.
        """
        return bool(self.etag or (digest and self.validator))

    def same(self, other: "Origin") -> bool:
        """True unless the two answers are known to have different bytes."""
        pairs = (
            (self.etag, other.etag),
            (self.last_modified, other.last_modified),
            (self.total, other.total),
        )
        return all(mine in (None, "", theirs) or theirs in (None, "") for mine, theirs in pairs)


def origin_of(url: str, response: Response) -> Origin:
    """The origin by the headers of a 200 or 206, which describe the whole file."""
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
    """True if the file was a second old or more, so that no later change has its date (RFC 9110, 8.8.2.2)."""
    changed, answered = http_date(modified), http_date(date)
    if changed is None or answered is None or not _can_be_sent_back(modified):
        return False
    return answered - changed >= timedelta(seconds=1)


def _can_be_sent_back(validator: str) -> bool:
    return len(validator) <= VALIDATOR_LENGTH and validator.isprintable()


class StreamDigester:
    """A Digester with a thread, which starts once the stream has READ_CHUNK bytes.

    Used by one thread. Call `finish` at the end: no thread may outlive its download.
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
        """Wait until all chunks are in the digests; more may follow."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def value(self, name: str = OF_RECORD) -> str:
        self.finish()
        return self._digester.value(name)

    def _work(self) -> None:
        while (data := self._waiting.get()) is not None:
            self._digester.update(data)


class Part:
    """The unfinished file at `path`; made by `open_part`."""

    def __init__(self, path: Path, algorithms: Iterable[str], draft: Path | None) -> None:
        """`draft` as in Download: if given, a file is made at `path` only for more than HELD bytes."""
        self.path = path
        self.origin: Origin | None = None
        self._draft = draft
        self._held: list[bytes] = []
        """All bytes, as long as there is no file."""
        self._descriptor = None if draft else _open(path, 0)
        self._has_bytes = self._descriptor is not None and os.fstat(self._descriptor).st_size > 0
        """Whether the file may have bytes."""
        self._origin_saved = draft is None and origin_path(path).exists()
        self._algorithms = tuple(algorithms)
        self.digests = StreamDigester(self._algorithms)

    @property
    def size(self) -> int:
        return self.digests.size

    @property
    def complete(self) -> bool:
        """True if all bytes that the source announced have arrived."""
        return self.origin is not None and self.origin.total == self.size

    def continue_from(self, url: str, attempt: Attempt, *, declared: bool) -> None:
        """Use the bytes that an earlier try left, if the file that they belong to is known.

        Without a declared digest, which is compared later, the bytes must match their recorded digest.
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
            self.restart()  # damaged, or continued without a new record
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
        # Only a large file is worth a second file with its origin.
        if before < READ_CHUNK <= self.digests.size and self.origin and not self.complete:
            self._origin_saved = True
            origin_path(self.path).write_text(self.origin.model_dump_json())

    def _open_file(self) -> int:
        """The descriptor of the file at `path`; writes the bytes held in memory to a new file."""
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
        """Record size and digest for the attempt that continues; without them it starts over."""
        if self.origin is None or self.size < READ_CHUNK or self.complete:
            return
        with suppress(OSError):
            os.fsync(self._open_file())
            noted = {"noted_size": self.size, "noted_sha512": self.digests.value()}
            origin_path(self.path).write_text(self.origin.model_copy(update=noted).model_dump_json())
            self._origin_saved = True

    def publish(self, target: Path) -> None:
        """Put the bytes at `target`, which is complete or absent unless the machine crashes.

        Nothing is synced: callers either read the bytes again after a crash, or sync all files together.
        """
        path = self.path
        if self._descriptor is None and self._draft is not None:
            path = self._draft
            write_file(path, b"".join(self._held))
        try:
            os.replace(path, target)  # noqa: PTH105 - for every small file: Path.replace parses the target
        except FileNotFoundError:
            target.parent.mkdir(exist_ok=True)
            path.replace(target)
        self._forget_origin()

    def _forget_origin(self) -> None:
        if self._origin_saved:
            origin_path(self.path).unlink(missing_ok=True)
            self._origin_saved = False


def origin_path(path: Path) -> Path:
    """The file with the origin of the part at `path`."""
    return path.with_name(f"{path.name}{FROM}")


def saved_origin(path: Path) -> Origin | None:
    """The origin of the part at `path`; None if not known."""
    try:
        return Origin.model_validate_json(origin_path(path).read_bytes())
    except (OSError, ValueError):
        return None


def _open(path: Path, flags: int, existing: Path | None = None) -> int:
    """Open to append. `existing`: the folder below which folders are made; None: the file's grandparent."""
    flags |= os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        make_below(path.parent, existing or path.parent.parent)
        return os.open(path, flags, 0o666)


@contextmanager
def open_part(path: Path, algorithms: Iterable[str], draft: Path | None = None) -> Iterator[Part]:
    """Open the part at `path` with its existing bytes; a full disk is a transient failure.

    `draft` as in Download: if given, nothing is at `path`, and no part is looked for.
    """
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
        if not is_full(error):
            raise
        with suppress(OSError):
            for unfinished in (path, origin_path(path), *([draft] if draft else [])):
                unfinished.unlink(missing_ok=True)
        raise no_room(f"{error.strerror} while fetching {path.name}") from error


def _any_size(_: int) -> None:
    """Admit every size."""


class DocumentTooLarge(StepFailed):
    """A small document, as a manifest, that has more bytes than its reader accepts."""

    def __init__(self, name: str, has: str, limit: int) -> None:
        super().__init__(
            FailureKind.CONTENT,
            f"{name} has {has}, but the limit is {limit:,}; "
            "divide it, or ask the operator for a higher limit",
        )
        self.cause = causes.LIMIT_EXCEEDED(limit=f"of {limit:,} bytes for a document")


@dataclass(frozen=True)
class Download:
    """One file to fetch. `target` appears complete or not at all; unfinished bytes stay in `part`."""

    url: str
    target: Path
    part: Path
    digest: Digest | None = None
    size: int | None = None
    limit: int | None = None
    """Maximum bytes accepted, whatever the source sends."""
    admit: Callable[[int], None] = _any_size
    """Called with the size that the file will have, before bytes are written; raises if there is no room."""
    draft: Path | None = None
    """Where a complete small file is written before it gets its name. Only allowed if nothing is at or beside
    `part` yet; then only the folder of `draft` must exist, not that of `part`."""

    @property
    def label(self) -> str:
        """The file's name for messages."""
        return f"{self.target.name} ({redact_url(self.url)})"

    def check_stated(self, total: int | None) -> None:
        """Raise if the source states a size that the file must not have."""
        if None not in (self.size, total) and total != self.size:
            raise self._wrong_size(f"{total:,}")
        self._check_limit(total or 0)
        self.admit(total or 0)

    def check_size(self, size: int) -> None:
        """Raise unless the file may have that many bytes; called before they are written."""
        if self.size is not None and size > self.size:
            raise self._wrong_size(f"more than {self.size:,}")
        self._check_limit(size)
        self.admit(size)

    def check_whole(self, size: int, digests: StreamDigester) -> None:
        """DigestMismatch unless the received bytes have the declared size and digest."""
        if self.size is not None and size != self.size:
            failure = self._wrong_size(f"{size:,}")
            raise DigestMismatch(failure.message, failure.cause)
        if self.digest is not None and (actual := digests.value(self.digest.algorithm)) != self.digest.value:
            mismatch = self.digest.mismatch(actual, self.label)
            if is_upload(self.url):
                mismatch = self.digest.arrived_otherwise(actual, self.target.name)
            raise DigestMismatch(mismatch, causes.DIGEST_DIFFERS(**dict(self.digest), received=actual))

    def _wrong_size(self, actual: str) -> StepFailed:
        message = f"{self.label}: the source has {actual} bytes, but {self.size:,} were declared"
        return content(message).because(causes.SIZE_DIFFERS(declared=self.size, received=actual))

    def broken(self, fault: str) -> StepFailed:
        cause = causes.SOURCE_BROKE(host=place_of(self.url))
        return transient(f"{redact_url(self.url)}: {fault}").because(cause)

    def _check_limit(self, size: int) -> None:
        if self.limit is not None and size > self.limit:
            raise content(f"{self.label} has more than the {self.limit:,} bytes that are accepted").because(
                causes.LIMIT_EXCEEDED(limit=f"object_bytes of {self.limit:,} bytes")
            )


@dataclass(frozen=True)
class Downloaded:
    """A completely received file: its size and its digest of record (sha512), computed while it streamed."""

    size: int
    sha512: str
    is_web_page: bool = False
    name: str = ""
    """The name that the source states, if it is usable."""


@dataclass(frozen=True)
class UploadedSource:
    root: Path

    def size(self, url: str) -> int:
        return locate(self.root, url).file.size

    def read(self, url: str, limit: int) -> bytes:
        """Read a small document of at most `limit` bytes."""
        stored = locate(self.root, url)
        if stored.file.size > limit:
            raise DocumentTooLarge(quote_name(stored.file.name), f"{stored.file.size:,} bytes", limit)
        with faults(self.root):
            data = stored.path.read_bytes()
        if size_and_sha512([data], ignore) != (stored.file.size, stored.file.sha512):
            raise _damaged(stored)
        return data

    def copy(self, file: Download, attempt: Attempt) -> Downloaded:
        """Copy one file; it appears once its digests match the upload's and the depositor's.

        A copy, not a link: a fault may change the job's files in place, but must not change the upload.
        """
        stored = locate(self.root, file.url)
        file.check_stated(stored.file.size)
        algorithms = {OF_RECORD, file.digest.algorithm if file.digest else OF_RECORD}
        with open_part(file.part, algorithms, file.draft) as part:
            part.restart()
            with faults(self.root):
                source = stored.path.open("rb")
            with source:
                while chunk := _next_piece(source, self.root):
                    attempt.check()
                    part.append(chunk)
                    attempt.report(Progress(bytes=part.size, bytes_expected=stored.file.size))
            if (part.size, part.digests.value()) != (stored.file.size, stored.file.sha512):
                part.discard()
                raise _damaged(stored)
            try:
                file.check_whole(part.size, part.digests)
            except DigestMismatch as mismatch:
                part.discard()
                raise content(str(mismatch)).because(mismatch.cause) from mismatch
            attempt.check()
            part.publish(file.target)
            return Downloaded(part.size, part.digests.value())


def _next_piece(source: BinaryIO, root: Path) -> bytes:
    with faults(root):
        return source.read(READ_CHUNK)


def _damaged(stored: StoredUpload) -> StepFailed:
    return system(
        f"{stored.path} does not have the bytes that were uploaded as {quote_name(stored.file.name)}: "
        "restore it and resume the job, or have the file uploaded and submitted again"
    ).because(causes.UPLOAD_DAMAGED())
