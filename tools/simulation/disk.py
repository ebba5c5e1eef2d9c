"""The disk of the host whose workers run: what is lost when its power is cut, or when it is full.

The files are real, in memory, and a killed process loses nothing of them. A power cut loses, folder by
folder, the last changes of entries since the folder's last fsync, and of each file the last bytes since its
own. A rename between two folders is lost in both or in none. SQLite's files are durable as they are.
"""

import builtins
import errno
import io
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from tools.simulation.replacing import Put
from tools.simulation.world import World

DURABLE = "inventory.sqlite"
"""The beginning of the names of files that are not lost: of the inventory, which syncs at each commit."""

Place = tuple[int, str]
"""The inode number of a folder, and a name in it."""


Change: TypeAlias = tuple[tuple[Place, Place], ...]
"""Moves of entries that happen together; a new entry comes, by name only, from where removed ones go."""


class Disk:
    """Everything below one folder, as long as its functions replace those of `os` and `io`."""

    def __init__(self, world: World, home: Path) -> None:
        self._world, self._home = world, str(home)
        self._removed = f"{home.parent}/removed"
        os.mkdir(self._removed)
        self._bin = os.stat(self._removed).st_ino
        self._changes: list[Change] = []
        """Not synced, in their order."""
        self._synced: dict[int, int] = {}
        """Inode number of a file -> how many of its bytes are synced."""
        self._names = count(1)
        self._full_until = 0.0
        self._os = {name: getattr(os, name) for name in self._functions()} | {"open of io": io.open}

    def replace(self, put: Put) -> None:
        """Have this disk's functions called in place of those of `os` and `io`."""
        for name, value in self._functions().items():
            put(os, name, value)
        for module in (io, builtins):
            put(module, "open", self._open_file)

    def _functions(self) -> dict[str, Callable[..., Any]]:
        return {
            "open": self._open,
            "write": self._growing("write"),
            "copy_file_range": self._growing("copy_file_range"),
            "ftruncate": self._truncate,
            "link": self._link,
            "mkdir": self._make_folder,
            "unlink": self._removing("unlink"),
            "rmdir": self._removing("rmdir"),
            "rename": self._rename,
            "replace": self._rename,
            "fsync": self._sync,
            "fdatasync": self._sync,
        }

    # --- the faults

    def fill(self, seconds: float) -> None:
        """Until then what needs space often finds none."""
        self._world.note("disk", "full", f"{seconds:.1f}")
        self._full_until = self._world.now + seconds

    def _need_room(self, path: str) -> None:
        world = self._world
        if world.current is not None and world.now < self._full_until and world.chance.random() < 0.5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def cut_power(self) -> None:
        """Lose what is not synced, as much as the seed says; the rest is durable then."""
        lost = self._lost()
        self._world.note("disk", "power cut", f"{len(lost)} of {len(self._changes)} changes of folders lost")
        where = {self._inode(self._home): (0, self._home), self._bin: (0, self._removed)}
        for top in (self._home, self._removed):
            for folder, below, _ in os.walk(top):
                parent = self._inode(folder)
                where |= {self._inode(f"{folder}/{name}"): (parent, name) for name in below}
        for change in reversed(lost):
            for source, target in reversed(change):
                if not {source[0], target[0]} <= where.keys():
                    continue  # a process that had the folder open removed it for good
                before, after = _path(where, target), _path(where, source)
                if not os.path.lexists(before):
                    continue
                self._os["rename"](before, after)
                if (inode := self._inode(after)) in where:
                    where[inode] = source
        for path in self._files():
            self._shorten(path)
        self.settle()

    def _lost(self) -> list[Change]:
        """The last changes of each folder, and with a change all later ones of its folders."""
        chance = self._world.chance
        numbers = Counter(folder for change in self._changes for folder in self._folders(change))
        left = {
            folder: chance.choice((0, number, chance.randint(0, number)))
            for folder, number in numbers.items()
        }
        lost: list[Change] = []
        for change in self._changes:
            folders = self._folders(change)
            if all(left[folder] > 0 for folder in folders):
                for folder in folders:
                    left[folder] -= 1
            else:
                left |= dict.fromkeys(folders, 0)
                lost.append(change)
        return lost

    def _shorten(self, path: str) -> None:
        """Lose the last bytes, or all but their number, as file systems do that enter the size first."""
        chance, status = self._world.chance, os.stat(path)
        size = status.st_size
        synced = min(self._synced.get(status.st_ino, 0), size)
        left = synced + int(chance.choice((0, 1, chance.random())) * (size - synced))
        if left < size:
            os.chmod(path, status.st_mode | stat.S_IWUSR)
            os.truncate(path, left)
            if chance.random() < 0.3:
                os.truncate(path, size)
            os.chmod(path, status.st_mode)
            self._synced[status.st_ino] = size  # a second link of the file shows the same bytes
            self._world.note("disk", "bytes lost", f"{path.removeprefix(self._home)} {left} of {size}")

    def settle(self) -> None:
        """All is durable as it is."""
        self._changes.clear()
        self._synced = {(status := os.stat(path)).st_ino: status.st_size for path in self._files()}

    def _files(self) -> Iterator[str]:
        for folder, below, names in os.walk(self._home):
            below.sort()
            yield from (f"{folder}/{name}" for name in sorted(names) if not name.startswith(DURABLE))

    # --- the functions

    def _inode(self, path: str) -> int:
        return os.stat(path).st_ino

    def _inside(self, path: Any, folder: int | None = None) -> str:
        """The whole path if it is on this disk, else an empty text. `folder`: a descriptor."""
        whole = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if folder is not None:
            whole = f"{os.readlink(f'/proc/self/fd/{folder}')}/{whole}"
        return whole if whole.startswith(self._home) else ""

    def _place(self, path: str) -> Place:
        folder, _, name = path.rpartition("/")
        return self._inode(folder), name

    def _new_name(self) -> Place:
        return self._bin, str(next(self._names))

    def _folders(self, change: Change) -> dict[int, None]:
        """The inode numbers of the folders whose entries it changes."""
        return dict.fromkeys(folder for move in change for folder, _ in move if folder != self._bin)

    def _creating(self, path: str, create: Callable[[], Any]) -> Any:
        """`path`: the new one, empty if it is not on this disk."""
        if not path or os.path.lexists(path):
            return create()
        self._need_room(path)
        result = create()
        self._changes.append(((self._new_name(), self._place(path)),))
        return result

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        whole = self._inside(path, dir_fd) if flags & os.O_CREAT else ""
        opening = partial(self._os["open"], path, flags, mode, dir_fd=dir_fd)
        descriptor = int(self._creating(whole, opening))
        if whole and flags & os.O_TRUNC:
            self._synced.pop(os.fstat(descriptor).st_ino, None)
        return descriptor

    def _open_file(self, path: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        whole = self._inside(path) if set(mode) & set("wxa") else ""
        opened = self._creating(whole, partial(self._os["open of io"], path, mode, *more, **options))
        if whole and "w" in mode:
            self._synced.pop(os.fstat(opened.fileno()).st_ino, None)
        return opened

    def _growing(self, name: str) -> Callable[..., Any]:
        def grow(*arguments: Any) -> Any:
            self._need_room("")
            return self._os[name](*arguments)

        return grow

    def _truncate(self, descriptor: int, length: int) -> None:
        self._os["ftruncate"](descriptor, length)
        inode = os.fstat(descriptor).st_ino
        self._synced[inode] = min(self._synced.get(inode, 0), length)

    def _link(self, source: Any, target: Any, **options: Any) -> None:
        self._creating(self._inside(target), partial(self._os["link"], source, target, **options))

    def _make_folder(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._creating(self._inside(path, dir_fd), partial(self._os["mkdir"], path, mode, dir_fd=dir_fd))

    def _removing(self, name: str) -> Callable[..., Any]:
        """`unlink` or `rmdir`; a call that the kernel refuses goes to the kernel."""

        def remove(path: Any, *, dir_fd: int | None = None) -> None:
            whole = self._inside(path, dir_fd)
            is_folder = os.path.isdir(whole)
            fits = is_folder == (name == "rmdir") and not (is_folder and os.listdir(whole))
            if whole and fits:
                self.remove(whole)
            else:
                self._os[name](path, dir_fd=dir_fd)

        return remove

    def remove(self, path: str) -> None:
        to = self._new_name()
        self._os["rename"](path, f"{self._removed}/{to[1]}")
        self._changes.append(((self._place(path), to),))

    def _rename(self, source: Any, target: Any, **options: Any) -> None:
        before, after = self._inside(source), self._inside(target)
        if not (before and after) or options:
            self._os["rename"](source, target, **options)
            return
        moves = []
        if os.path.isfile(after) and os.path.isfile(before):
            moves = [(self._place(after), self._new_name())]
            self._os["link"](after, f"{self._removed}/{moves[0][1][1]}")
        self._os["rename"](before, after)
        self._changes.append((*moves, (self._place(before), self._place(after))))

    def _sync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISDIR(status.st_mode):
            self._synced[status.st_ino] = status.st_size
            return
        folders, left = {status.st_ino}, []
        for change in reversed(self._changes):
            if folders.isdisjoint(own := self._folders(change)):
                left.append(change)
            else:
                folders |= own.keys()
        self._changes = left[::-1]


def _path(where: dict[int, Place], place: Place) -> str:
    folder, name = place
    return f"{_path(where, where[folder])}/{name}" if folder else name
