"""The same bytes handled by libraries and the system alone: what no step of ours can be faster than."""

import hashlib
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from urllib3 import PoolManager

from benchmarks._source import SMALL
from pipeline.fixity import READ_CHUNK
from pipeline.settings import Settings

THREADS: int = Settings.model_fields["download_threads"].default


def fetch_with_urllib3(source: str, folder: Path, files: int) -> None:
    """Fetch small files with both digests, each complete when it has its name; synced at the end."""
    pool = PoolManager(maxsize=THREADS)
    folder.mkdir()

    def fetch(number: int) -> None:
        sha256, sha512 = hashlib.sha256(), hashlib.sha512()
        part = folder / f"{number}.part"
        answer = pool.request("GET", f"{source}{SMALL}{number}", preload_content=False)
        with part.open("wb", buffering=0) as file:
            while chunk := answer.read1(READ_CHUNK):
                sha256.update(chunk)
                sha512.update(chunk)
                file.write(chunk)
        answer.release_conn()
        part.rename(folder / f"{number:05}")

    with ThreadPoolExecutor(THREADS) as threads:
        for _ in threads.map(fetch, range(files)):
            pass
    _sync(folder)


def copy_and_read_back(source: Path, target: Path) -> None:
    """Copy a folder of files, sync the copy, and compute sha512 of each copy as the disk has it."""
    subprocess.run(("cp", "-r", str(source), str(target)), check=True)
    _sync(target)
    for path in target.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            hashlib.file_digest(file, "sha512")


def _sync(folder: Path) -> None:
    subprocess.run(("sync", "-f", str(folder)), check=True)
