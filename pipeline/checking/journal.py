"""What checks found so far, in the job's working directory: one file for each attempt.

A worker that takes over reads the files of all attempts and continues after the last file that was checked.
The first line of a run says what is checked and by what; a line for each finding follows, and one for the
end, or for the death of the check's service.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from pipeline.checks import CheckedFile, CheckFinding, Stage
from pipeline.file_system import opened, read_all, write_all, write_file
from pipeline.records import Record, now
from pipeline.working_storage.mount import ContentGone

NAME, SUFFIX = "checks", ".jsonl"
"""0.3.0 has a folder of this name, with a file for each run of a check."""

_HEAD = b'{"check":'
"""How the first line of a run begins."""

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


def read_all_of(folder: Path) -> list[Journal]:
    """The runs that all attempts noted in the working directory: those that ended first, then by length."""
    journals = [journal for path in _paths(folder) for journal in _read(path)]
    return sorted(journals, key=lambda j: (j.ended is None, -len(j.lines)))


def separate(folder: Path) -> None:
    """Write each run into a file of its own: a worker of 0.3.0 may take over, and reads no other form."""
    for path in _entries(folder, f"{NAME}."):
        for run in _runs(path):
            name = Head.model_validate_json(run.partition(b"\n")[0]).check
            (folder / NAME).mkdir(exist_ok=True)
            write_file(folder / NAME / path.name.replace(NAME, name, 1), run.removesuffix(b"\n") + b"\n")
        path.unlink(missing_ok=True)


def _paths(folder: Path) -> list[Path]:
    """In the order of their names."""
    return sorted((*_entries(folder, f"{NAME}."), *_entries(folder / NAME)))


def _entries(folder: Path, beginning: str = "") -> list[Path]:
    with suppress(FileNotFoundError):
        names = os.listdir(folder)  # noqa: PTH208 - runs in every job
        return [folder / name for name in names if name.startswith(beginning) and name.endswith(SUFFIX)]
    return []


def _runs(path: Path) -> list[bytes]:
    """The lines of each run."""
    with suppress(FileNotFoundError):
        return [_HEAD + run for run in (b"\n" + read_all(path)).split(b"\n" + _HEAD)[1:]]
    return []


def _read(path: Path) -> Iterator[Journal]:
    """Without the runs whose first line is not whole, or is of another release."""
    for run in _runs(path):
        head, *rest = run.split(b"\n")
        with suppress(ValueError):
            yield _journal(Head.model_validate_json(head), rest)


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
    """Writes the journal of one attempt: short runs together, since a file costs more than a short run."""

    path: Path
    head: Head = field(init=False)
    lines: list[Line] = field(init=False)
    """The findings of the run."""
    pending: list[Record] = field(default_factory=list)
    begun: bool = False
    """The beginning of the run is written."""
    written: float = 0.0

    def begin(self, head: Head, earlier: Iterable[Line]) -> None:
        """Begin a run; `earlier` was found before."""
        self.head, self.lines, self.begun = head, list(earlier), False
        self.pending += (head, *self.lines)
        self.written = time.monotonic()

    def learn(self, version: str) -> None:
        """Note the version of the check, whose process has started; findings before keep theirs."""
        if not self.lines:
            self.head = self.pending[-1] = self.head.model_copy(update={"version": version})
            self.written = time.monotonic()

    def add(self, file: CheckedFile, finding: CheckFinding) -> None:
        line = Line(finding=finding, sha512=file.sha512)
        self.lines.append(line)
        self.pending.append(line)
        if time.monotonic() - self.written > FLUSH_INTERVAL:
            self.flush()

    def note_death(self, file: CheckedFile) -> None:
        """The attempt ends: all that it found is written."""
        self.pending.append(Line(sha512=file.sha512))
        self.flush()

    def end(self) -> Journal:
        at = now()
        self.pending.append(Line(at=at))
        if self.begun:
            self.flush()
        return Journal(self.head, tuple(self.lines), at)

    def flush(self) -> None:
        """ContentGone if the working directory has vanished."""
        lines = [value.model_dump_json(exclude_none=True).encode() + b"\n" for value in self.pending]
        try:
            if lines:
                with opened(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as journal:
                    write_all(journal, b"".join(lines))
        except FileNotFoundError as error:
            raise ContentGone(f"{error.filename} is missing") from error
        self.pending.clear()
        self.begun, self.written = True, time.monotonic()


@contextmanager
def writing(folder: Path, token: str) -> Iterator[Writer]:
    """The writer of an attempt; what it found is written at the end, also if the attempt fails."""
    writer = Writer(folder / f"{NAME}.{token}{SUFFIX}")
    try:
        yield writer
    except BaseException:
        with suppress(ContentGone, OSError):
            writer.flush()
        raise
    writer.flush()


def tidy(folder: Path, content: str) -> None:
    """Remove the journals, each of one run, but those about this content that are longest or have a death."""
    journals = {path: next(_read(path), None) for path in _paths(folder)}
    own = {path: one for path, one in journals.items() if one and one.head.content == content}
    longest = max(own, key=lambda path: len(own[path].lines), default=None)
    for path in journals:
        if path not in own or (path != longest and not own[path].deaths):
            path.unlink(missing_ok=True)
