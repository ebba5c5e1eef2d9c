"""Small file systems for one run, so that a full disk is a real error of the kernel in the middle of a write.

A tmpfs of a few megabytes needs a mount namespace, which root has everywhere and other users on most
machines. Without one, the run leaves out the faults that need it, and its result says so.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ENTERED = "CHAOS_OWN_MOUNTS"
_WAYS = (("--mount",), ("--user", "--map-root-user", "--mount"))


def enter() -> None:
    """Start this program again in a mount namespace of its own, if the machine allows one."""
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
    """Put a file system of this size at `folder`; it goes with the last process of the run."""
    folder.mkdir(parents=True)
    if ENTERED not in os.environ:
        return False
    size = f"size={megabytes}m"
    done = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", size, "chaos", str(folder)), capture_output=True, check=False
    )
    return done.returncode == 0


def unmake(folder: Path) -> None:
    """Take it away again, so that the folder can be removed."""
    if ENTERED in os.environ:
        subprocess.run(("umount", str(folder)), capture_output=True, check=False)


class Filler:
    """A file that takes all that is free, until it is removed."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / ".filler"

    def fill(self) -> int:
        """Write until the disk is full, leaving less than a page; bytes written."""
        piece = b"\0" * (1 << 16)
        with self._file.open("ab", buffering=0) as stream, suppress(OSError):
            while True:
                stream.write(piece)
        return self._file.stat().st_size

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)
