"""A pass-through of FUSE that can stall, slow and fail: `python pass_through.py BELOW MOUNT_POINT THROTTLE`.

Nothing is cached: what one host writes another host reads at once, as from storage that a fleet may use.
Locks of flock(2) go through to the storage below, so that they hold between hosts.
"""

import errno
import fcntl
import os
import sys
import time
from pathlib import Path
from typing import Any

import mfusepy

from tools.chaos.hosts.throttle import Throttle, Trouble

STALL_POLL = 0.05
"""Seconds between two looks of a stalled call."""

_STAT = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_blksize")
_TIMES = ("st_atime_ns", "st_mtime_ns", "st_ctime_ns")
_STATVFS = (
    *("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_flag", "f_frsize"),
    "f_namemax",
)


class PassThrough(mfusepy.Operations):  # type: ignore[misc]
    use_ns = True

    def __init__(self, below: Path, throttle: Throttle) -> None:
        self._below = str(below)
        self._throttle = throttle

    def _real(self, path: str) -> str:
        """The path in the storage below, once the storage answers."""
        self._answer()
        return self._below + path

    def _answer(self) -> None:
        trouble, per_call = self._throttle.get()
        if trouble is Trouble.SLOW:
            time.sleep(per_call)
        while trouble is Trouble.STALLED:
            time.sleep(STALL_POLL)
            trouble, _ = self._throttle.get()
        if trouble is Trouble.FAILING:
            raise mfusepy.FuseOSError(errno.EIO)

    def init_with_config(self, conn_info: Any, config_3: Any) -> None:
        if config_3 is not None:
            config_3.entry_timeout = config_3.attr_timeout = config_3.negative_timeout = 0.0

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        real = self._real(path)
        known = os.fstat(fh) if fh is not None else os.lstat(real)
        times = {name.removesuffix("_ns"): getattr(known, name) for name in _TIMES}
        return {name: getattr(known, name) for name in _STAT} | times

    def access(self, path: str, amode: int) -> int:
        if not os.access(self._real(path), amode):
            raise mfusepy.FuseOSError(errno.EACCES)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        known = os.statvfs(self._real(path))
        return {name: getattr(known, name) for name in _STATVFS}

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        real = self._real(path)
        names = [".", "..", *os.listdir(real)]
        return [(name, known, 0) for name in names if (known := _entry(os.path.join(real, name)))]

    def readlink(self, path: str) -> str:
        return os.readlink(self._real(path))

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._real(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._real(path))
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._real(path))
        return 0

    def symlink(self, target: str, source: str) -> int:
        os.symlink(source, self._real(target))
        return 0

    def link(self, target: str, source: str) -> int:
        os.link(self._below + source, self._real(target), follow_symlinks=False)
        return 0

    def rename(self, old: str, new: str) -> int:
        os.rename(self._real(old), self._below + new)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._real(path), mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        os.chown(self._real(path), uid, gid, follow_symlinks=False)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        real = self._real(path)
        if times is None:
            os.utime(real, follow_symlinks=False)
        else:
            os.utime(real, ns=times, follow_symlinks=False)
        return 0

    def open(self, path: str, flags: int) -> int:
        return os.open(self._real(path), flags & ~(os.O_CREAT | os.O_EXCL))

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        """Create a file; `fi`: the flags of open(2), among them O_EXCL, which thus holds between hosts."""
        return os.open(self._real(path), fi, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        self._answer()
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._answer()
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        real = self._real(path)
        os.truncate(real if fh is None else fh, length)
        return 0

    def fallocate(self, path: str, mode: int, offset: int, size: int, fh: int) -> int:
        self._answer()
        if mode:
            raise mfusepy.FuseOSError(errno.EOPNOTSUPP)
        os.posix_fallocate(fh, offset, size)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._answer()
        os.fsync(fh)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        descriptor = os.open(self._real(path), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return 0

    def flock(self, path: str, fh: int, op: int) -> int:
        self._answer()
        fcntl.flock(fh, op)
        return 0

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0


def _entry(path: str) -> dict[str, int]:
    """What a listing says of a file: an entry without an inode would be left out; empty if it is gone."""
    try:
        known = os.lstat(path)
    except FileNotFoundError:
        return {}
    return {"st_mode": known.st_mode, "st_ino": known.st_ino}


def main(below: str, mount_point: str, throttle: str) -> None:
    os.umask(0)  # the kernel has applied the caller's
    mfusepy.FUSE(
        PassThrough(Path(below), Throttle(Path(throttle))),
        mount_point,
        foreground=True,
        nothreads=False,
        allow_other=True,
        use_ino=True,
        hard_remove=True,
        fsname="arkline-chaos",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
