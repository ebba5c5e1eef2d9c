"""Backends as the conformance suites get them, and a run of a suite as a site runs it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline.storage.ocfl.storage import OcflStorage
from plugins.conformance.subjects import Change, StoragePlace
from tests.support.command_forks import CAN_START, forks
from tests.support.ocfl_fixture import memory

PROJECT = Path(__file__).parents[2]

LOADED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
"""Libraries that are loaded before pytest, which would rewrite their assertions."""


def passed(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> int:
    """Run pytest with these arguments in a folder outside the checkout; the number of tests that passed.

    A failure, an error or a skipped test fails with the output of the run, unless `-rs` was given, which
    shows skipped tests.
    """
    left_out = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:valkey")
    variables = {**os.environ, "PYTHONPATH": str(PROJECT), **(environment or {})}
    code, said = _pytest(("-q", *left_out, "-W", "error", "-W", LOADED, *arguments), folder, variables)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", said)}
    assert code == 0, said[-10_000:]
    assert "-rs" in arguments or not counts.get("skipped"), said[-10_000:]
    return counts["passed"]


def _pytest(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit code of pytest and its output. For a suite it is forked from a process that has loaded the
    libraries, which most of its time would go to; that of storages has a new interpreter, as its writers die.
    """
    suite = any(re.match("--arkline-(check|inventory|login|minter)=", argument) for argument in arguments)
    with tempfile.TemporaryFile() as log:
        if CAN_START and suite:
            code = forks().start("pytest", arguments, environment, folder, log).wait()
        else:
            command = (sys.executable, "-m", "pytest", *arguments)
            code = subprocess.run(
                command, cwd=folder, env=environment, stdout=log, stderr=log, check=False
            ).returncode
        log.seek(0)
        return code, log.read().decode()


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
