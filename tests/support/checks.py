"""Runs of checks, as the pipeline hands them to the inventory."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from pipeline import plugins
from pipeline.checks import FORMAT_IDENTIFICATION, VIRUS_CHECK, CheckFinding, CheckRun, CheckVerdict, Stage
from tests.support import guests
from tests.support.recordings import FIRST_DAY
from tools.chaos.actors import children


def found_in(
    path: str, code: str, verdict: CheckVerdict = CheckVerdict.FOUND, message: str = ""
) -> CheckFinding:
    return CheckFinding(path=path, verdict=verdict, code=code, message=message)


def run_of(
    check: str,
    event: str,
    *findings: CheckFinding,
    version: str,
    stage: Stage = Stage.DOWNLOADED,
    at: datetime = FIRST_DAY,
) -> CheckRun:
    return CheckRun(check=check, version=version, event=event, stage=stage, at=at, findings=findings)


def scanned(
    *files: str | CheckFinding,
    version: str = "1.4.1/27500",
    stage: Stage = Stage.DOWNLOADED,
    at: datetime = FIRST_DAY,
) -> CheckRun:
    """A virus check; a file that is given by its path is fine."""
    findings = (
        CheckFinding(path=each, verdict=CheckVerdict.FINE) if isinstance(each, str) else each
        for each in files
    )
    return run_of("clamav", VIRUS_CHECK, *findings, version=version, stage=stage, at=at)


def identified(
    formats: Mapping[str, str],
    version: str = "v119",
    stage: Stage = Stage.DOWNLOADED,
    at: datetime = FIRST_DAY,
) -> CheckRun:
    """`formats`: path -> code of PRONOM."""
    findings = (
        CheckFinding(path=path, verdict=CheckVerdict.FINE, code=code) for path, code in formats.items()
    )
    return run_of("pronom", FORMAT_IDENTIFICATION, *findings, version=version, stage=stage, at=at)


@contextmanager
def installed(folder: Path, patch: pytest.MonkeyPatch, **checks: type) -> Iterator[None]:
    """Have this process find the checks as installed."""
    guests.install(folder, **checks)
    patch.syspath_prepend(str(folder))
    plugins._points.cache_clear()
    yield
    plugins._points.cache_clear()


def checks_of_this_process() -> list[int]:
    """The processes that it has started for checks."""
    own = children(os.getpid())
    return [pid for pid in own if b"pipeline.checking" in Path(f"/proc/{pid}/cmdline").read_bytes()]
