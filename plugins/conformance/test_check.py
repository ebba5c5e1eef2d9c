"""A check: what it says of each file, what it leaves alone, and that its declared access is enough for it."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from pipeline.attempt import UNATTENDED
from pipeline.checking.process import Checker, Opening
from pipeline.checks import (
    FINDINGS_OF_A_FILE,
    Access,
    CheckedFile,
    CheckFinding,
    CheckRule,
    CheckVerdict,
)
from plugins.conformance.subjects import CheckSubject

LARGE = 5_000_000
"""Bytes."""

FILES = {
    "a.txt": b"A small file.\n",
    "a name with blanks.txt": b"blanks\n",
    "gr\N{LATIN SMALL LETTER O WITH DIAERESIS}\N{LATIN SMALL LETTER SHARP S}e/\u65e5\u672c.txt": b"letters\n",
    "-dash": b"-\n",
    "it's; $(a) *name*": b"for a shell\n",
    "empty": b"",
    "zeros": bytes(LARGE),
    "every byte": bytes(range(256)) * 16,
    "cut.zip": b"PK\x03\x04\x14\x00",
    "cut.pdf": b"%PDF-1.7\n1 0 obj\n<<",
    "cut.xml": b"<?xml version='1.0'?><a>",
    "cut.gz": b"\x1f\x8b\x08",
}
"""What depositors send, in names and in content: valid, cut off, and large."""


class Stopped(Exception):
    """The work was cancelled."""


class Context:
    def __init__(self, stop: bool = False) -> None:
        self.stop = stop
        self.asked = 0

    def alive(self) -> None:
        self.asked += 1
        if self.stop:
            raise Stopped


@pytest.fixture
def deposit(tmp_path: Path) -> Path:
    """A folder that a process of a check may read."""
    folder = tmp_path / "deposit"
    folder.mkdir()
    return folder


def written(folder: Path, files: dict[str, bytes]) -> list[CheckedFile]:
    files_of_deposit = []
    for path, data in files.items():
        source = folder / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_bytes(data)
        files_of_deposit.append(CheckedFile(path, source, len(data), hashlib.sha512(data).hexdigest()))
    return files_of_deposit


def confined(check: CheckSubject, folder: Path, files: list[CheckedFile]) -> list[CheckFinding]:
    """Findings of the check in a process with its declared access, as a worker runs it."""
    findings: list[CheckFinding] = []
    checker = Checker([folder])
    try:
        opening = Opening.of(check.rule, check.kind)
        checker.run(opening, files, UNATTENDED, lambda _file, finding: findings.append(finding))
    finally:
        checker.close()
    return findings


def test_its_name_its_access_and_its_settings_are_declared(check: CheckSubject) -> None:
    assert CheckRule(name=check.kind.name).name == check.kind.name
    assert isinstance(check.kind.access, Access)
    assert re.search(r"\S", check.kind.event), "extend Check, or name the event that a run is in PREMIS"
    assert check.kind.settings is None or issubclass(check.kind.settings, BaseModel)
    assert re.search(r"\S", check.opened().version)


def test_every_file_has_a_finding(check: CheckSubject, deposit: Path) -> None:
    files = written(deposit, FILES)

    findings = confined(check, deposit, files)

    assert {finding.path for finding in findings} == {file.path for file in files}
    order = [file.path for file in files]
    assert [finding.path for finding in findings] == sorted((f.path for f in findings), key=order.index)
    lacking = {f.path: f.message for f in findings if f.code in ("crashed", "no-answer", "invalid-answer")}
    assert lacking == {}, "the check must judge these files, or say itself why it cannot"


def test_the_same_files_have_the_same_findings(check: CheckSubject, deposit: Path) -> None:
    files = written(deposit, FILES)

    assert confined(check, deposit, files) == confined(check, deposit, files)


def test_what_it_is_there_for_is_found(check: CheckSubject, deposit: Path) -> None:
    """The site's samples, among other files, have the verdicts that the site expects."""
    assert any(sample.verdict is CheckVerdict.FOUND for sample in check.samples) or check.never_finds, (
        "give a sample that is found, or say why this check finds nothing"
    )
    named = {f"samples/{number}{sample.suffix}": sample for number, sample in enumerate(check.samples)}
    files = written(deposit, {"a.txt": b"a\n", **{path: sample.content for path, sample in named.items()}})

    findings = confined(check, deposit, files)

    for path, sample in named.items():
        own = [(finding.verdict, finding.code) for finding in findings if finding.path == path]
        assert (sample.verdict, sample.code) in own, f"{path} was to be {sample.verdict} {sample.code}: {own}"


def test_a_file_that_cannot_be_read_is_not_called_fine(check: CheckSubject, deposit: Path) -> None:
    files = written(deposit, {"a.txt": b"a\n", "gone.txt": b"gone\n", "z.txt": b"z\n"})
    (deposit / "gone.txt").unlink()

    findings = confined(check, deposit, files)

    verdicts = {finding.path: finding.verdict for finding in findings}
    assert verdicts["gone.txt"] is not CheckVerdict.FINE
    assert {verdicts["a.txt"], verdicts["z.txt"]} <= {CheckVerdict.FINE, CheckVerdict.FOUND}


def test_it_leaves_the_deposit_as_it_is(check: CheckSubject, deposit: Path) -> None:
    files = written(deposit, FILES)
    before = state(deposit)

    list(check.opened().run(files, Context()))

    assert state(deposit) == before


def state(folder: Path) -> dict[Path, tuple[int, int, bytes]]:
    return {
        path: (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def test_the_findings_of_a_file_come_before_the_next_file_is_taken(
    check: CheckSubject, deposit: Path
) -> None:
    files = written(deposit, FILES)
    taken: list[str] = []

    def handed() -> Iterator[CheckedFile]:
        for file in files:
            taken.append(file.path)
            yield file

    counts: dict[str, int] = {}
    for finding in check.opened().run(handed(), Context()):
        assert finding.path == taken[-1]
        counts[finding.path] = counts.get(finding.path, 0) + 1

    assert taken == [file.path for file in files]
    assert counts.keys() == set(taken)
    assert max(counts.values()) <= FINDINGS_OF_A_FILE


def test_without_files_there_is_nothing_to_find(check: CheckSubject) -> None:
    assert list(check.opened().run([], Context())) == []


def test_it_runs_a_second_time(check: CheckSubject, deposit: Path) -> None:
    """One process serves many deposits."""
    files, opened = written(deposit, FILES), check.opened()

    assert list(opened.run(files, Context())) == list(opened.run(files, Context()))


def test_it_stops_when_its_work_was_cancelled(check: CheckSubject, deposit: Path) -> None:
    files, context = written(deposit, {"large": bytes(10 * LARGE)}), Context(stop=True)
    try:
        list(check.opened().run(files, context))
    except Stopped:
        return
    assert context.asked == 0, "the check swallows what context.alive() raises"
