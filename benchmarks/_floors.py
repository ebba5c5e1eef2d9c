"""Lower bounds for the steps: libraries and the system alone process the same bytes."""

import hashlib
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pycurl

from benchmarks._source import SMALL
from pipeline.settings import Settings

THREADS: int = Settings.model_fields["download_threads"].default
"""Concurrent connections, as shipped."""


def place_apart(folder: Path) -> None:
    """Let ext4 place each folder below `folder` in a separate part of the disk.

    Otherwise it searches for a new file's inode among those that other programs have just freed. Without a
    journal that costs 0.02 to 1.2 ms per file, and differs from folder to folder.
    """
    with suppress(FileNotFoundError):
        subprocess.run(("chattr", "+T", str(folder)), check=False, stderr=subprocess.DEVNULL)


def fetch_with_libcurl(source: str, folder: Path, files: int) -> None:
    """Fetch small files, compute sha256 and sha512, rename each complete file, and sync all at the end.

    Uses as many threads as a step, each with its own handle.
    """
    folder.mkdir()
    own = threading.local()

    def fetch(number: int) -> None:
        if not hasattr(own, "curl"):
            own.curl, own.pieces = pycurl.Curl(), []
            own.curl.setopt(pycurl.NOSIGNAL, 1)
            own.curl.setopt(pycurl.WRITEFUNCTION, own.pieces.append)
        own.curl.setopt(pycurl.URL, f"{source}{SMALL}{number}")
        own.curl.perform()
        body = b"".join(own.pieces)
        own.pieces.clear()
        hashlib.sha256(body).hexdigest()
        hashlib.sha512(body).hexdigest()
        part = folder / f"{number}.part"
        part.write_bytes(body)
        part.rename(folder / f"{number:05}")

    with ThreadPoolExecutor(THREADS) as threads:
        for _ in threads.map(fetch, range(files)):
            pass
    _sync(folder)


def copy_and_read_back(source: Path, target: Path) -> None:
    """Copy the files of a folder, sync the copies, and read each copy from the disk for its sha512."""
    subprocess.run(("cp", "-r", str(source), str(target)), check=True)
    _sync(target)
    for path in target.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            hashlib.file_digest(file, "sha512")


def _sync(folder: Path) -> None:
    subprocess.run(("sync", "-f", str(folder)), check=True)
