"""What a check found so far, in the job's working directory: one file for each attempt and check.

A worker that takes over reads the files of all attempts and continues after the last file that was checked.
The first line says what was checked and by what; a line for each finding follows, and one for the end, or for
the death of the check's service.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from pipeline.checks import CheckedFile, CheckFinding, Stage
from pipeline.file_system import read_all
from pipeline.records import Record, now
from pipeline.working_storage.mount import ContentGone

SUFFIX = ".jsonl"

FLUSH_INTERVAL = 1.0
"""Seconds of findings that a crash may lose: their files are checked again."""


class Head(Record):
    """What was checked, and by what."""

    check: str
    event: str
    stage: Stage
    settings: str
    version: str
    content: str
    """A digest of the names and digests of all files."""


class Line(Record):
    """A finding of the file with this digest; a digest alone: the check's service died at that file; a time
    alone: the end of the run.
    """

    finding: CheckFinding | None = None
    sha512: str = ""
    at: datetime | None = None


@dataclass(frozen=True)
class Journal:
    """A journal as it was read."""

    head: Head
    lines: tuple[Line, ...]
    ended: datetime | None
    deaths: tuple[str, ...] = ()
    """Digests of the files at which the check's service died."""

    def findings_of(self, digests: Mapping[str, str]) -> tuple[CheckFinding, ...]:
        """The findings of the files with these digests by path."""
        return tuple(
            line.finding
            for line in self.lines
            if line.finding is not None and digests.get(line.finding.path) == line.sha512
        )

    def checked(self, files: Sequence[CheckedFile]) -> int:
        """How many of the files, from the first on, are checked: the last one may have further findings."""
        if self.ended is not None:
            return len(files)
        paths = {line.finding.path for line in self.lines if line.finding is not None}
        done = next((n for n, file in enumerate(files) if file.path not in paths), len(files))
        return max(0, done - 1)


def content_of(files: Iterable[CheckedFile]) -> str:
    digest = sha256()
    for file in files:
        digest.update(f"{file.path}\0{file.sha512}\n".encode())
    return digest.hexdigest()


def read_all_of(folder: Path, name: str) -> list[Journal]:
    """The journals of the check by all attempts, those that ended first, then by length."""
    journals = [journal for path in _paths(folder, name) if (journal := _read(path))]
    return sorted(journals, key=lambda j: (j.ended is None, -len(j.lines)))


def _paths(folder: Path, name: str) -> list[Path]:
    """Those of the check's journals, in the order of their names."""
    try:
        paths = [path for path in folder.iterdir() if path.name.startswith(f"{name}.")]
    except FileNotFoundError:
        return []
    return sorted(path for path in paths if path.suffix == SUFFIX)


def _read(path: Path) -> Journal | None:
    """None if the first line is not whole, or is of another release."""
    with suppress(FileNotFoundError):
        head, *rest = read_all(path).split(b"\n")
        with suppress(ValueError):
            return _journal(Head.model_validate_json(head), rest)
    return None


def _journal(head: Head, rest: Sequence[bytes]) -> Journal:
    lines = list[Line]()
    for text in rest:
        try:
            lines.append(Line.model_validate_json(text))
        except ValueError:
            break  # the worker died while it wrote
    ended = lines[-1].at if lines else None
    findings = tuple(line for line in lines if line.finding is not None)
    deaths = tuple(line.sha512 for line in lines if line.finding is None and line.sha512)
    return Journal(head, findings, ended, deaths)


@dataclass
class Writer:
    """Writes the journal of one attempt; the file appears after a second, at a death or at the end."""

    path: Path
    head: Head
    pending: list[Line]
    """What was found before."""
    begun: bool = False
    written: float = field(default_factory=time.monotonic)

    def learn(self, version: str) -> None:
        """Note the version of the check, whose process has started; findings before keep theirs."""
        if not (self.begun or self.pending):
            self.head = self.head.model_copy(update={"version": version})
            self.written = time.monotonic()

    def add(self, file: CheckedFile, finding: CheckFinding) -> Line:
        line = Line(finding=finding, sha512=file.sha512)
        self.pending.append(line)
        if time.monotonic() - self.written > FLUSH_INTERVAL:
            self._flush()
        return line

    def note_death(self, file: CheckedFile) -> None:
        """The attempt ends: all that it found is written."""
        self.pending.append(Line(sha512=file.sha512))
        self._flush()

    def end(self) -> datetime:
        at = now()
        self.pending.append(Line(at=at))
        self._flush()
        return at

    def _flush(self) -> None:
        """ContentGone if the working directory has vanished."""
        values: list[Record] = [*([] if self.begun else [self.head]), *self.pending]
        lines = (value.model_dump_json(exclude_none=True).encode() + b"\n" for value in values)
        try:
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("ab") as journal:
                journal.writelines(lines)
        except FileNotFoundError as error:
            raise ContentGone(f"{error.filename} is missing") from error
        self.begun = True
        self.pending.clear()
        self.written = time.monotonic()


def tidy(folder: Path, name: str, content: str) -> None:
    """Remove the check's journals, except those about this content that are the longest or have a death."""
    journals = {path: _read(path) for path in _paths(folder, name)}
    own = {path: one for path, one in journals.items() if one and one.head.content == content}
    longest = max(own, key=lambda path: len(own[path].lines), default=None)
    for path in journals:
        if path not in own or (path != longest and not own[path].deaths):
            path.unlink(missing_ok=True)
