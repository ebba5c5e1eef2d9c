"""Small file systems for one run, so that a full, read-only or absent disk is a real kernel error.

A tmpfs of a few megabytes needs a mount namespace, which root can create everywhere and other users on most
machines. Without one, the run skips the faults that need it, and its result says so.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ENTERED = "CHAOS_OWN_MOUNTS"
_WAYS = (("--mount",), ("--user", "--map-root-user", "--mount"))


def enter() -> None:
    """Restart this program in its own mount namespace, if the machine allows one."""
    if ENTERED in os.environ or sys.platform != "linux":
        return
    for way in _WAYS:
        command = ("unshare", *way, "--", sys.executable, "-m", "tools.chaos", *sys.argv[1:])
        try:
            tried = subprocess.run(("unshare", *way, "--", "true"), capture_output=True, check=False)
        except FileNotFoundError:
            return
        if tried.returncode == 0:
            os.execvpe(command[0], command, {**os.environ, ENTERED: "yes"})


def make_small(folder: Path, megabytes: int) -> bool:
    """Mount a file system of this size on `folder`; it disappears with the run's last process."""
    folder.mkdir(parents=True)
    if ENTERED not in os.environ:
        return False
    return _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "chaos", str(folder))


def unmake(folder: Path) -> None:
    """Unmount it, so that the folder can be removed."""
    if ENTERED in os.environ:
        subprocess.run(("umount", str(folder)), capture_output=True, check=False)


class Filler:
    """A file that takes all free space until it is removed."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / ".filler"

    def fill(self) -> int:
        """Fill the disk up to less than a page; returns the bytes written."""
        piece = b"\0" * (1 << 16)
        with self._file.open("ab", buffering=0) as stream, suppress(OSError):
            while True:
                stream.write(piece)
        return self._file.stat().st_size

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)


class Disk:
    """A mounted folder that can be read-only for a while, or show the empty mount point below it.

    Another mount covers the folder: open files are unaffected, and every new access meets the fault.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.mount_points: list[Path] = []
        """The empty folders that were shown; whatever is written there is lost for a repository."""
        self._covered = 0

    def make_read_only(self) -> bool:
        """Remount read-only; returns whether the machine did it."""
        return self._cover(self._folder) and _mount("-o", "remount,bind,ro", str(self._folder))

    def hide(self) -> bool:
        """Cover the folder with an empty one; returns whether the machine did it."""
        empty = self._folder.parent / "mount-points" / f"{self._folder.name}-{len(self.mount_points)}"
        empty.mkdir(parents=True)
        self.mount_points.append(empty)
        return self._cover(empty)

    def restore(self) -> None:
        while self._covered:
            subprocess.run(("umount", "-l", str(self._folder)), capture_output=True, check=False)
            self._covered -= 1

    def _cover(self, other: Path) -> bool:
        covered = _mount("--bind", str(other), str(self._folder))
        self._covered += covered
        return covered


def _mount(*arguments: str) -> bool:
    return subprocess.run(("mount", *arguments), capture_output=True, check=False).returncode == 0
