"""Folders that are made only below a folder that is there."""

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
