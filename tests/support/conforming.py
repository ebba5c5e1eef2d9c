"""Backends as the conformance suites get them, and a run of a suite as a site runs it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.storage.ocfl.storage import OcflStorage
from plugins.conformance.subjects import Change, StoragePlace
from tests.support.ocfl_fixture import memory

PROJECT = Path(__file__).parents[2]


def passed(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> int:
    """Run pytest with these arguments in a folder outside the checkout; the number of tests that passed.

    A failure, an error or a skipped test fails with the output of the run, unless `-rs` was given, which
    shows skipped tests.
    """
    left_out = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:valkey")
    command = [sys.executable, "-m", "pytest", "-q", *left_out, "-W", "error", *arguments]
    run = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", run.stdout)
    }
    said = run.stdout[-8000:] + run.stderr[-2000:]
    assert run.returncode == 0, said
    assert "-rs" in arguments or not counts.get("skipped"), said
    return counts["passed"]


@contextmanager
def disk(folder: Path) -> Iterator[StoragePlace]:
    """An OCFL root on a disk."""
    with memory(folder) as here:
        root, elsewhere = here / "ocfl", here / "elsewhere"

        def change(ark: str, path: str, change: Change) -> None:
            stored = OcflStorage(root).object(ark)
            head = stored.head()
            assert head is not None
            digest = head.versions[head.head].digests()[path]
            replace(Path(stored.location(head.manifest[digest][0])), change)

        @contextmanager
        def away() -> Iterator[None]:
            root.rename(elsewhere)
            yield
            shutil.rmtree(root, ignore_errors=True)  # what was made at the mount point is hidden by the mount
            elsewhere.rename(root)

        yield StoragePlace(
            lambda expected: OcflStorage(root, lock_wait=0.5, expected=expected),
            change,
            away,
            here / "working",
        )


def replace(path: Path, change: Change) -> None:
    data = change(path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
