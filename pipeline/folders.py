"""Folders that are made only below a folder that is there, and folders that are removed with all in them."""

import os
from contextlib import suppress
from pathlib import Path


def make_below(path: Path, existing: Path) -> None:
    """Make `path`, which is `existing` or below; FileNotFoundError if `existing` has gone.

    To make all parents would write into the empty mount point of a disk that was unmounted meanwhile.
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
    """The folders below `folder` in which there is nothing, by their path below `folder`."""
    return tuple(
        sorted(
            Path(path).relative_to(folder).as_posix()
            for path, folders, files in os.walk(folder)
            if not folders and not files and Path(path) != folder
        )
    )


def remove_tree(folder: Path | str) -> None:
    """Remove a folder and all that is in it; what has gone meanwhile is no fault.

    A third of the calls of the system that shutil.rmtree has. That one also guards against a user who puts a
    link in place of a folder while it removes; nobody else writes to ours.
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
                os.unlink(entry.path)  # noqa: PTH108 - of every job
    with suppress(FileNotFoundError):
        os.rmdir(folder)  # noqa: PTH106
