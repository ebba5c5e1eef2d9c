"""Writing, use and removal of uploads: bytes stream to an unfinished file, completed by one rename.

Rule: a file of an upload is complete, synced and never changed. A crash leaves an unfinished file at most,
which the sender may continue, and which is removed after a day otherwise. An upload is never removed while a
batch is about to use it.
"""

import errno
import fcntl
import os
import shutil
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from pipeline import codes
from pipeline.errors import ArklineError
from pipeline.file_system import is_full, sync, sync_all
from pipeline.fixity import OF_RECORD, READ_CHUNK, Digester, DigestMismatch
from pipeline.names import is_upload_id, quote_name, safe_name
from pipeline.records import now
from pipeline.uploads import stored
from pipeline.uploads.stored import (
    Declared,
    Upload,
    UploadedFile,
    UploadRefused,
    faults,
    find_file,
    find_part,
    load,
)


def create(root: Path, owner: str, upload: str = "") -> Upload:
    """Create an upload of this owner; returns an existing one with the id `upload` if it is the owner's."""
    stored.require(root)
    upload = upload or uuid.uuid4().hex
    folder = stored.folder_of(root, upload)
    with storing(root):
        for path in (folder.parent, folder, folder / "files", folder / "parts"):
            path.mkdir(exist_ok=True)
        if not (folder / stored.RECORD).exists():
            sync_all([root, folder.parent])  # an upload with a record is durable
            stored.write_record(folder / stored.RECORD, Upload(id=upload, owner=owner))
    return load(root, upload, owner)


class _KeptDigests:
    """The digests of the unfinished files that this process wrote last, so that a continuation reads nothing.

    Thread-safe. Digests are handed to one writer, and only if the file has not changed since they were kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._guard = Lock()
        self._kept: OrderedDict[tuple[int, int], tuple[tuple[int, int, str], Digester]] = OrderedDict()
        """Device and inode -> (size, time, algorithm) of the file, and the digests."""

    def keep(self, stream: BinaryIO, algorithm: str, digests: Digester) -> None:
        status = os.fstat(stream.fileno())
        if status.st_size != digests.size:
            return  # a write was incomplete
        with self._guard:
            self._kept[status.st_dev, status.st_ino] = (
                (status.st_size, status.st_mtime_ns, algorithm),
                digests,
            )
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def take(self, stream: BinaryIO, algorithm: str) -> Digester | None:
        status = os.fstat(stream.fileno())
        with self._guard:
            entry = self._kept.pop((status.st_dev, status.st_ino), None)
        if entry is None or entry[0] != (status.st_size, status.st_mtime_ns, algorithm):
            return None
        return entry[1]


_KEPT = _KeptDigests(most=1000)

REREAD = 64 << 20
"""Bytes that one call reads again, in a fraction of a second, before the thread serves another request."""


Taking = Callable[[int], AbstractContextManager[None]]


class PartWriter:
    """An unfinished file, locked for one writer; created by `writing`."""

    def __init__(
        self,
        root: Path,
        upload: str,
        declared: Declared,
        stream: BinaryIO,
        limit: int,
        taking: Taking,
    ) -> None:
        self.declared = declared
        self._root = root
        self._upload = upload
        self._stream = stream
        self._limit = limit
        self._taking = taking
        self._algorithm = declared.digest.algorithm if declared.digest else OF_RECORD
        self._digests = _KEPT.take(stream, self._algorithm) or Digester({OF_RECORD, self._algorithm})
        stream.seek(self._digests.size)
        self._is_read = False

    def read_on(self) -> bool:
        """Read the next REREAD bytes that an earlier process wrote; False once all have been read."""
        left = REREAD
        while left > 0 and not self._is_read:
            chunk = self._stream.read(min(left, READ_CHUNK))
            self._digests.update(chunk)
            self._is_read = not chunk
            left -= len(chunk)
        return not self._is_read

    @property
    def offset(self) -> int:
        """The bytes received so far; reads all of them first."""
        while self.read_on():
            pass
        return self._digests.size

    @property
    def folder(self) -> Path:
        return stored.part_folder(self._root, self._upload, self.declared.name)

    def append(self, chunk: bytes) -> None:
        """Write the next bytes; `upload-too-large` or UploadRefused if the file gets too large."""
        size = self.offset + len(chunk)
        check_size(self.declared.name, size, self._limit)
        if self.declared.size is not None and size > self.declared.size:
            raise UploadRefused(
                f"{quote_name(self.declared.name)} has more than the {self.declared.size:,} bytes that were "
                "declared: upload it again"
            )
        with self._taking(len(chunk)):
            self._stream.write(chunk)
        self._digests.update(chunk)

    def sync(self) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def pause(self) -> None:
        """Sync, and keep the digests for the request that continues."""
        self.sync()
        _KEPT.keep(self._stream, self._algorithm, self._digests)

    def finish(self) -> UploadedFile:
        """Complete and check the file; UploadRefused, with nothing stored, if it is not as declared."""
        name, declared = quote_name(self.declared.name), self.declared
        if declared.size not in (None, self.offset):
            raise UploadRefused(
                f"{name} has {self.offset:,} bytes, but {declared.size:,} were declared: upload it again"
            )
        if declared.digest is not None:
            try:
                self._digests.check(declared.digest, name)
            except DigestMismatch as mismatch:
                raise UploadRefused(f"{mismatch}: nothing was stored; upload it again") from mismatch
        self.sync()
        file = UploadedFile(
            name=declared.name, size=self.offset, sha512=self._digests.value(), digest=declared.digest
        )
        stored.write_record(self.folder / stored.DESCRIPTION, file)
        return self._publish(file)

    def _publish(self, file: UploadedFile) -> UploadedFile:
        target = stored.file_folder(self._root, self._upload, file.name)
        try:
            self.folder.rename(target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            earlier = find_file(self._root, self._upload, file.name)
            if earlier is None or earlier.sha512 != file.sha512:
                raise UploadRefused(
                    f"the upload has a file {quote_name(file.name)} with other content: give the file "
                    "another name, or begin another upload",
                    code=codes.UPLOAD_CONFLICT,
                ) from error
            self.discard()
            return earlier
        sync(target.parent)
        return file

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def writing(  # noqa: PLR0913 - who writes what, and within which limits
    root: Path,
    upload: str,
    declared: Declared,
    limit: int,
    *,
    resumable: bool = False,
    offset: int | None = None,
    taking: Taking = lambda size: nullcontext(),
) -> Iterator[PartWriter]:
    """Write a file of the upload; `upload-busy` if another request is doing so.

    `taking` counts bytes while they are written, and may refuse them. `resumable`: bytes that arrived before
    an exception are kept, to be continued; otherwise they are removed, as refused bytes always are. The
    declaration with which a file was begun also holds for its continuation. `offset-differs` if the file does
    not end at `offset`, which is checked before its bytes are read.
    """
    stored.require(root)
    safe_name(declared.name)
    check_size(declared.name, declared.size or 0, limit)
    with storing(root):
        _check_room(root, declared.size or 0)
        folder = stored.part_folder(root, upload, declared.name)
        if offset and not folder.exists():
            raise _not_begun(root, upload, declared.name)
        folder.mkdir(exist_ok=True)
        with (folder / stored.CONTENT).open("a+b") as stream:
            _lock(stream, folder, declared.name)
            begun = find_part(root, upload, declared.name)
            size = os.fstat(stream.fileno()).st_size if begun and resumable else 0
            if offset not in (None, size):
                raise _differs(size)
            if begun is None or not resumable:
                stream.truncate(0)
                (folder / stored.DESCRIPTION).unlink(missing_ok=True)
                if resumable:  # nobody continues another one, whose description needs no sync
                    stored.write_record(folder / stored.DESCRIPTION, declared)
            writer = PartWriter(
                root, upload, begun if begun and resumable else declared, stream, limit, taking
            )
            try:
                yield writer
            except BaseException as error:
                if resumable and not _is_refusal(error):
                    writer.pause()
                else:
                    writer.discard()
                raise


def _not_begun(root: Path, upload: str, name: str) -> ArklineError:
    """Why no bytes are appended to a file without an unfinished part: it is complete, or absent."""
    file = find_file(root, upload, name)
    if file is None:
        return _differs(0)
    return ArklineError(
        f"{quote_name(name)} is complete with {file.size:,} bytes: nothing more is accepted for it",
        code=codes.OFFSET_DIFFERS,
    )


def _differs(size: int) -> ArklineError:
    return ArklineError(f"the upload has {size:,} bytes: continue from there", code=codes.OFFSET_DIFFERS)


def _is_refusal(error: BaseException) -> bool:
    """Whether the received bytes are useless for a continuation, or fill the disk."""
    if isinstance(error, OSError):
        return is_full(error)
    return isinstance(error, UploadRefused)


def check_size(name: str, size: int, limit: int) -> None:
    if size > limit:
        raise UploadRefused(
            f"{quote_name(name)} has more than the {limit:,} bytes that are accepted for one file "
            "(ARKLINE_UPLOAD_BYTES): divide it, or submit its URL",
            code=codes.UPLOAD_TOO_LARGE,
        )


def _lock(stream: BinaryIO, folder: Path, name: str) -> None:
    """Lock the file; `upload-busy` if another request has locked or just completed it."""
    busy = ArklineError(
        f"{quote_name(name)} is being uploaded by another request: try again when it has ended",
        code=codes.UPLOAD_BUSY,
    )
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(stream.fileno()).st_ino != (folder / stored.CONTENT).stat().st_ino:
            raise busy
    except (BlockingIOError, FileNotFoundError) as error:
        raise busy from error


def _check_room(root: Path, size: int) -> None:
    if size > shutil.disk_usage(root).free:
        raise ArklineError(
            f"the folder of uploads has no room for {size:,} bytes: try again later, or ask the operator",
            code=codes.UPLOADS_FULL,
        )


@contextmanager
def storing(root: Path) -> Iterator[None]:
    """Raise file system faults in this block as an outage, and a full disk as `uploads-full`."""
    with faults(root):
        try:
            yield
        except OSError as error:
            if not is_full(error):
                raise
            raise ArklineError(
                "the folder of uploads is full, and nothing was stored: try again later, or ask the operator",
                code=codes.UPLOADS_FULL,
            ) from error


PART_AGE = 86400.0
"""Seconds without a new byte after which an unfinished file is removed."""


def use(root: Path, upload: str, owner: str) -> Upload:
    """Record that a batch uses the upload, which is then kept for as long again as an unused one."""
    folder = stored.folder_of(root, upload)
    with storing(root), _locked(folder):
        record = load(root, upload, owner)
        used = record.model_copy(update={"submitted": record.submitted or now()})
        stored.write_record(folder / stored.RECORD, used)
        return used


def remove(root: Path, upload: str) -> None:
    """Remove the upload; a crash leaves it complete, or for the next clean-up to remove."""
    with faults(root):
        (root / stored.REMOVED).mkdir(exist_ok=True)
        target = root / stored.REMOVED / f"{upload}.{uuid.uuid4().hex}"
        with suppress(FileNotFoundError):
            stored.folder_of(root, upload).rename(target)
        shutil.rmtree(target, ignore_errors=True)


def remove_file(root: Path, upload: str, name: str) -> None:
    """Remove a complete file, so that another one may have its name; a crash leaves it whole or absent."""
    with faults(root):
        (root / stored.REMOVED).mkdir(exist_ok=True)
        target = root / stored.REMOVED / f"{upload}.{uuid.uuid4().hex}"
        with suppress(FileNotFoundError):
            stored.file_folder(root, upload, name).rename(target)
        shutil.rmtree(target, ignore_errors=True)


def clean_up(root: Path, unused_for: float, needed: Callable[[], frozenset[str]]) -> list[str]:
    """Remove uploads that no batch needs and nobody wrote to for `unused_for` seconds; returns their ids.

    `needed`: returns the ids of uploads that a batch may still read; called once the old ones are known, and
    only if there are any. Time is measured by the clock of the file system, which dated the files.
    """
    if not stored.is_marked(root):
        return []
    with faults(root):
        present = _present(root)
        for left in _folders(root / stored.REMOVED):
            shutil.rmtree(left, ignore_errors=True)
        for form in (root / stored.FORMS).glob("*.*"):
            with suppress(FileNotFoundError):
                if present - form.stat().st_mtime > PART_AGE:
                    form.unlink()
        for note in (root / stored.OWNERS).glob("*/*"):
            if not stored.folder_of(root, note.name).exists():
                note.unlink(missing_ok=True)
        uploads = [
            folder for prefix in _folders(root) for folder in _folders(prefix) if is_upload_id(folder.name)
        ]
        for upload in uploads:
            _remove_old_parts(upload, present)
        old = [upload for upload in uploads if present - last_written(upload) > unused_for]
        unneeded = {upload.name for upload in old} - needed() if old else set()
        return [
            upload.name
            for upload in old
            if upload.name in unneeded and _remove_if_old(root, upload, present, unused_for)
        ]


def _remove_if_old(root: Path, upload: Path, present: float, unused_for: float) -> bool:
    with _locked(upload):
        if present - last_written(upload) <= unused_for:
            return False  # it has just been submitted
        remove(root, upload.name)
        return True


def _remove_old_parts(upload: Path, present: float) -> None:
    for part in _folders(upload / "parts"):
        with suppress(FileNotFoundError):
            content = part / stored.CONTENT
            newest = (content if content.exists() else part).stat().st_mtime
            if present - newest > PART_AGE and not _is_written(content):
                shutil.rmtree(part, ignore_errors=True)


def _is_written(content: Path) -> bool:
    """Whether a request is writing the file now."""
    if not content.exists():
        return False
    with content.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def last_written(upload: Path) -> float:
    """When the upload was last written to."""
    places = [upload / stored.RECORD, upload / stored.DRAFT, upload / "files", upload / "parts"]
    places += [part / stored.CONTENT for part in _folders(upload / "parts")]
    moments = []
    for place in places:
        with suppress(FileNotFoundError):
            moments.append(place.stat().st_mtime)
    return max(moments, default=upload.stat().st_mtime)


def _present(root: Path) -> float:
    """The current time by the file system's clock."""
    mark = root / stored.MARK
    mark.touch()
    return mark.stat().st_mtime


def _folders(path: Path) -> list[Path]:
    try:
        return [entry for entry in path.iterdir() if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the upload's lock; without a lock if the folder no longer exists."""
    try:
        stream = (folder / "lock").open("a")
    except FileNotFoundError:
        yield
        return
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
