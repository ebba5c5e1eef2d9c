"""What earlier attempts at a download left behind, and how much of it can be trusted.

Rule: nothing is taken over on its looks. A whole file is read again and must have its declared digest, or
the one that was noted when it landed; part of a file is taken over only if a declared digest will judge
the whole. An earlier attempt may still be alive without knowing that it is over: its files are copied or
linked, never written to.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from pipeline.attempt import Attempt
from pipeline.fixity import OF_RECORD, PIECE, Digester
from pipeline.outcome import StepFailed
from pipeline.sources.part import beside
from pipeline.steps.expected_files import FileSpec
from pipeline.working_storage.workspace import DownloadedFile, Workspace

JOURNAL = "landed.jsonl"
"""In an attempt's folder: a line for each file that landed in it, written once the file is in place."""

Notes = dict[str, list[DownloadedFile]]
"""Path -> what was noted when a file landed there."""


def note(workspace: Workspace, file: DownloadedFile) -> None:
    """Remember how a file landed, for the attempt after this one."""
    workspace.attempt.mkdir(parents=True, exist_ok=True)
    with (workspace.attempt / JOURNAL).open("a", encoding="utf-8") as journal:
        journal.write(file.model_dump_json() + "\n")


def notes(workspace: Workspace) -> Notes:
    """All that is noted of this job's files: by the last landing, and by attempts that got less far."""
    found: Notes = defaultdict(list)
    for file in (*_landing(workspace), *_journals(workspace)):
        found[file.path].append(file)
    return found


def landing(workspace: Workspace, attempt: Attempt) -> tuple[DownloadedFile, ...] | None:
    """The files of a landing that an earlier attempt completed, if every one of them is still as it was."""
    files = _landing(workspace)
    for file in files:
        digester = _read(workspace.producer / file.path, (OF_RECORD,), attempt)
        if digester is None or (digester.size, digester.value()) != (file.size, file.sha512):
            return None
    return files or None


def reusable(
    path: Path, file: FileSpec, noted: list[DownloadedFile], attempt: Attempt
) -> DownloadedFile | None:
    """The file at `path` if it is the wanted one; else None, and it has to be fetched.

    Without a declared digest and without a note the file might be one that was cut off by a power failure,
    or of another state of the source: fetching it again is the only way to be sure.
    """
    noted = [each for each in noted if each.url == file.url]
    if file.digest is None and not noted:
        return None
    digester = _read(path, {OF_RECORD, file.digest.algorithm if file.digest else OF_RECORD}, attempt)
    if digester is None or file.size not in (None, digester.size):
        return None
    found = DownloadedFile(path=file.name, size=digester.size, sha512=digester.value(), url=file.url)
    if file.digest is not None:
        return found if digester.value(file.digest.algorithm) == file.digest.value else None
    return found if any((each.size, each.sha512) == (found.size, found.sha512) for each in noted) else None


def adopt_part(workspace: Workspace, name: str, file: FileSpec, attempt: Attempt) -> None:
    """Copy the longest beginning of `file` that an earlier attempt fetched to this attempt's `name`.

    The earlier ones are removed, so that a job that is interrupted often takes no more room each time. Who
    still writes to one of them is over, and keeps its bytes to itself.
    """
    own = workspace.attempt / name
    parts = [each / name for each in _others(workspace)]
    if file.digest is not None and not own.exists():
        _copy_longest([part for part in parts if beside(part).is_file()], own, attempt)
    for part in parts:
        for each in (part, beside(part)):
            with suppress(FileNotFoundError, NotADirectoryError):
                each.unlink()


def _copy_longest(parts: list[Path], own: Path, attempt: Attempt) -> None:
    sizes = {part: part.stat().st_size for part in parts if part.is_file()}
    if not sizes:
        return
    longest = max(sizes, key=sizes.__getitem__)
    own.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):  # its owner may be attempt, and just done with it
        beside(own).write_bytes(beside(longest).read_bytes())
        with longest.open("rb") as source, own.open("wb") as copy:
            while piece := source.read(PIECE):
                attempt.check()
                copy.write(piece)


def adopt_whole(workspace: Workspace, name: str) -> None:
    """Link a whole file that an earlier attempt fetched for itself, to be judged by `reusable`."""
    own = workspace.attempt / name
    for each in _others(workspace):
        if own.exists():
            return
        own.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            os.link(each / name, own)


def remove_strays(workspace: Workspace, files: tuple[DownloadedFile, ...]) -> None:
    """Leave in `producer/` exactly `files`."""
    kept = {file.path for file in files}
    for folder, folders, names in os.walk(workspace.producer, topdown=False):
        for name in names:
            path = Path(folder, name)
            if path.relative_to(workspace.producer).as_posix() not in kept:
                path.unlink()
        for name in folders:
            with suppress(OSError):  # not empty: it holds files that stay
                Path(folder, name).rmdir()


def remove_attempts(workspace: Workspace) -> None:
    """Remove what all attempts left; an attempt that is over and does not know it can place nothing more."""
    # Such an attempt may be writing into its folder right now. What stays goes with the working directory.
    shutil.rmtree(workspace.attempt.parent, ignore_errors=True)


def _others(workspace: Workspace) -> list[Path]:
    attempts = workspace.attempt.parent
    if not attempts.is_dir():
        return []
    return sorted(each for each in attempts.iterdir() if each != workspace.attempt)


def _landing(workspace: Workspace) -> tuple[DownloadedFile, ...]:
    if not workspace.landing.exists():
        return ()
    try:
        return workspace.read_downloaded()
    except StepFailed:
        return ()  # damaged: what it lists is fetched or checked anew


def _journals(workspace: Workspace) -> Iterator[DownloadedFile]:
    for attempt in (*_others(workspace), workspace.attempt):
        try:
            lines = (attempt / JOURNAL).read_bytes().splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            with suppress(ValidationError):  # a crash cut the last line
                yield DownloadedFile.model_validate_json(line)


def _read(path: Path, algorithms: set[str] | tuple[str, ...], attempt: Attempt) -> Digester | None:
    """Digests of the regular file at `path`; None if there is none."""
    if path.is_symlink() or not path.is_file():
        return None
    digester = Digester(algorithms)
    with path.open("rb") as stream:
        while piece := stream.read(PIECE):
            attempt.check()
            digester.update(piece)
    return digester
