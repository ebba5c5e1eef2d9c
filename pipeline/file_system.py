"""Files and folders on disk: durable writes, creation and removal, and which service a fault belongs to."""

import ctypes
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.outcome import Service, ServiceDown

SYNC_ONE_BY_ONE = 100
"""Maximum files that are synced one by one. More are synced by one syncfs: with 5,000 files of 10 KB that was
5 times faster, but a syncfs also waits for the writes of others."""

_FROM_THE_START = ctypes.c_int64(0)
_TO_THE_END = ctypes.c_int64(0)
_START_WRITING = 2
"""SYNC_FILE_RANGE_WRITE."""

_TO_SYNC = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

_C = ctypes.CDLL(None, use_errno=True)


@contextmanager
def opened(path: Path | str, flags: int, mode: int = 0o666) -> Iterator[int]:
    """A descriptor of the file or folder, closed on exit."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; a single system call may write only some of them."""
    written = os.write(descriptor, data)
    if written < len(data):
        rest = memoryview(data)[written:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def write_file(path: Path | str, data: bytes) -> None:
    """Write a file, replacing any existing content; nothing is synced."""
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
        write_all(descriptor, data)


def replace_file(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace the file by one with this mode; a crash leaves the old or the new one, whole."""
    draft = path.with_name(f"{path.name}.new")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft.unlink(missing_ok=True)  # a crash may have left one, with any mode
    with opened(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode) as descriptor:
        os.fchmod(descriptor, mode)  # whatever the umask is
        write_all(descriptor, text.encode())
        os.fsync(descriptor)
    draft.replace(path)


def write_whole(path: Path, data: bytes, draft: Path | None = None) -> None:
    """Write a small file that is complete or absent at any moment, even after a power failure.

    `draft`: where it is written first, in the same file system.
    """
    draft = draft or path.with_name(f"{path.name}.draft")
    write_file(draft, data)
    sync(draft)
    draft.replace(path)
    sync(path.parent)


def written(descriptor: int, write: Callable[[int], None]) -> int:
    """Call `write` with the descriptor and return the descriptor; close it if `write` fails."""
    try:
        write(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_all(path: Path | str) -> bytes:
    """The bytes of a file, read with half as many system calls as Path.read_bytes needs."""
    with opened(path, os.O_RDONLY) as descriptor:
        size = os.fstat(descriptor).st_size
        pieces = iter(lambda: os.read(descriptor, size + 1), b"")
        return b"".join(pieces)


def sync_tree(folder: Path, beside: Sequence[Path] = ()) -> None:
    """Make the folder and everything below it durable.

    `beside`: further files and folders of the same file system.
    """
    below = [(parent, files) for parent, _, files in os.walk(folder)]
    paths = [f"{parent}/{name}" for parent, files in below for name in files]
    if len(paths) > SYNC_ONE_BY_ONE and hasattr(_C, "syncfs"):
        with opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            if _C.syncfs(descriptor) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), str(folder))
        return
    sync_all([*paths, *(parent for parent, _ in below), *beside])


def sync_all(paths: Sequence[Path | str], open_files: Sequence[int] = ()) -> None:
    """Make these files and folders durable; writing of up to SYNC_ONE_BY_ONE starts before the first sync.

    For 13 small files and folders this takes a third of the CPU and half the time of syncs in 8 threads.
    `open_files`: descriptors of further files.
    """
    for start in range(0, max(1, len(paths)), SYNC_ONE_BY_ONE):
        descriptors: list[int] = []
        try:
            for path in paths[start : start + SYNC_ONE_BY_ONE]:
                descriptors.append(os.open(path, _TO_SYNC))
            _sync_together([*descriptors, *open_files] if start == 0 else descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _sync_together(descriptors: Sequence[int]) -> None:
    if len(descriptors) > 1:
        for descriptor in descriptors:
            start_writing(descriptor)
    for descriptor in descriptors:
        os.fsync(descriptor)


def start_writing(descriptor: int) -> None:
    """Start writing the file's cached pages to disk, so that a later sync takes less time."""
    if hasattr(_C, "sync_file_range"):
        _C.sync_file_range(descriptor, _FROM_THE_START, _TO_THE_END, _START_WRITING)


def sync(path: Path) -> None:
    """Make a file's bytes or a folder's entries durable; a new file needs both."""
    with opened(path, _TO_SYNC) as descriptor:
        os.fsync(descriptor)


def make_synced(folder: Path) -> None:
    """Make the folder and its missing parents, each of which is then durable, even if who made it died."""
    if not folder.is_dir():
        make_synced(folder.parent)
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error
    if os.access(folder.parent, os.R_OK | os.W_OK):  # otherwise nobody of ours has made the folder
        sync(folder.parent)


def make_below(path: Path, existing: Path) -> None:
    """Make `path`, which is `existing` or below it; FileNotFoundError if `existing` no longer exists.

    Making all parents would write into the empty mount point of a disk that has been unmounted.
    """
    if path == existing:
        if not existing.is_dir():
            raise FileNotFoundError(2, "No such file or directory", str(existing))
        return
    try:
        path.mkdir(exist_ok=True)
    except FileNotFoundError:
        make_below(path.parent, existing)
        path.mkdir(exist_ok=True)


def empty_folders(folder: Path) -> tuple[str, ...]:
    """The empty folders below `folder`, as paths relative to it."""
    return tuple(
        sorted(
            Path(path).relative_to(folder).as_posix()
            for path, folders, files in os.walk(folder)
            if not folders and not files and Path(path) != folder
        )
    )


def remove_tree(folder: Path | str) -> None:
    """Remove a folder with its content; entries that have already disappeared are no fault.

    Needs a third of the system calls of shutil.rmtree, which also guards against a user who replaces a folder
    by a link during the removal; nobody else writes to our folders.
    """
    try:
        with os.scandir(folder) as entries:
            below = list(entries)
    except FileNotFoundError:
        return
    for entry in below:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)  # noqa: PTH108 - runs in every job
    with suppress(FileNotFoundError):
        os.rmdir(folder)  # noqa: PTH106


FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""No space or no quota is left."""

_LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""No descriptor, memory or process is left on this machine; EAGAIN comes from fork."""

_BROKEN = frozenset(
    {
        errno.EROFS,
        errno.EIO,
        errno.ESTALE,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTCONN,  # a FUSE mount whose server ended
        errno.ENODEV,
        errno.ENXIO,
        errno.EHOSTDOWN,
        errno.ETIMEDOUT,  # a soft NFS mount
    }
)
"""Read-only, damaged, gone, or not permitted: the next file would fail in the same way."""


def is_full(error: OSError) -> bool:
    return error.errno in FULL


def lack_of_host(error: BaseException) -> ServiceDown | None:
    """A lack of descriptors, memory or processes as an outage of the worker's machine, not a job's fault."""
    is_lack = isinstance(error, OSError) and error.errno in _LACKING
    if not is_lack and not (isinstance(error, RuntimeError) and "can't start new thread" in str(error)):
        return None
    message = f"the worker's host lacks descriptors, memory or processes ({error})"
    return ServiceDown(Service.WORKER_HOST, message, of_host=True)


@contextmanager
def host_lacks() -> Iterator[None]:
    """Raise a lack of resources of the worker's machine as the machine's outage."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if (outage := lack_of_host(error)) is not None:
            raise outage from error
        raise


def is_fault_of(error: OSError, root: Path) -> bool:
    """Whether the file system of `root` is at fault, apart from being full."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return not root.is_dir()
    return error.errno in _BROKEN


@contextmanager
def mount_faults(service: Service, root: Path, name: str) -> Iterator[None]:
    """Raise a fault of the file system of `root` as an outage of `service`; `name` is for people."""
    try:
        yield
    except OSError as error:
        if is_fault_of(error, root):
            raise ServiceDown(service, fault_message(name, root, error), of_host=True) from error
        raise


def fault_message(name: str, root: Path, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"{name} {root} is missing: mount its disk on this host"
    return f"{name} {root} cannot be used: {error.strerror or error}"


@dataclass(frozen=True)
class Mark:
    """An empty file that distinguishes a shared folder from an empty mount point."""

    service: Service
    file: str
    folder: str
    """What is marked, for people."""
    effect: str = ""
    """The effect of a person marking the folder, for people."""

    def is_in(self, root: Path) -> bool:
        """Whether the folder is on this machine and mounted."""
        return (root / self.file).exists()

    def put_into(self, root: Path) -> None:
        make_synced(root)
        (root / self.file).touch()
        sync(root)

    def lacking(self, root: Path) -> ServiceDown:
        return self._outage(
            f"{self.folder} {root} is not there: it has no file {self.file}; mount it. If its content is "
            f"lost, or {root} is new, create that empty file in {root}{self.effect}"
        )

    def require(self, root: Path) -> None:
        """ServiceDown unless the folder has the mark."""
        with self.faults(root):
            if self.is_in(root):
                return
        raise self.lacking(root)

    @contextmanager
    def faults(self, root: Path) -> Iterator[None]:
        """Raise any fault of the folder as an outage."""
        try:
            yield
        except OSError as error:
            raise self._outage(f"{self.folder} {root} cannot be used: {error.strerror or error}") from error

    def _outage(self, message: str) -> ServiceDown:
        return ServiceDown(self.service, message, of_host=True)
