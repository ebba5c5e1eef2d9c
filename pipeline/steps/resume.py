"""Reuse of files of earlier download attempts, as far as they can be trusted.

Rule: no file is reused without reading it. A complete file must have its declared digest, or the one recorded
on arrival; part of a file is reused only if a declared digest will check the whole. An earlier attempt may
still be running without knowing that it is over, so its files are copied or linked, never written.
"""

import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from pipeline.attempt import Attempt
from pipeline.fixity import OF_RECORD, READ_CHUNK, Digester, digest_file
from pipeline.manifests.checkm import Row
from pipeline.sources.download import origin_path, saved_origin
from pipeline.working_storage.workspace import DownloadedFile, Workspace

JOURNAL = "landed.jsonl"
"""A file in an attempt's folder: a line per file without a declared digest, written once that is in place."""

Journal = dict[str, list[DownloadedFile]]
"""Path -> the entries for all files downloaded to it."""


@contextmanager
def journal_of(workspace: Workspace) -> Iterator[Callable[[Row, DownloadedFile], None]]:
    """A function that enters a downloaded file in the journal, if `reusable` needs the entry later.

    A file with a declared digest needs none, so a job with only such files writes no journal.
    """
    with ExitStack() as opened:

        @cache
        def journal() -> BinaryIO:
            workspace.make_folder(workspace.attempt)
            return opened.enter_context((workspace.attempt / JOURNAL).open("ab", buffering=0))

        def note(file: Row, downloaded: DownloadedFile) -> None:
            if file.digest is None:
                journal().write(downloaded.model_dump_json().encode() + b"\n")

        yield note


def read_journals(workspace: Workspace, attempts: Sequence[Path]) -> Journal:
    """All entries for this job's files, by a completed download and by these attempts."""
    journal: Journal = defaultdict(list)
    for file in (*(workspace.downloaded_files() or ()), *_journal_lines(attempts)):
        journal[file.path].append(file)
    return journal


def completed_download(workspace: Workspace, attempt: Attempt) -> tuple[DownloadedFile, ...] | None:
    """The files of a download that an earlier attempt completed, if all of them are unchanged."""
    files = workspace.downloaded_files() or ()
    for file in files:
        digester = _digest(workspace.producer / file.path, (OF_RECORD,), attempt)
        if digester is None or (digester.size, digester.value()) != (file.size, file.sha512):
            return None
    return files or None


def reusable(path: Path, file: Row, noted: list[DownloadedFile], attempt: Attempt) -> DownloadedFile | None:
    """The file at `path` if it is the expected one; None if it has to be fetched.

    Without a declared digest and a journal entry, the file might have been truncated by a power failure, or
    belong to another version of the source: only fetching it again is safe.
    """
    noted = [entry for entry in noted if entry.url == file.url]
    if file.digest is None and not noted:
        return None
    digester = _digest(path, {OF_RECORD, file.digest.algorithm if file.digest else OF_RECORD}, attempt)
    if digester is None or file.size not in (None, digester.size):
        return None
    actual = DownloadedFile(
        path=file.name,
        size=digester.size,
        sha512=digester.value(),
        url=file.url,
        is_web_page=any(entry.is_web_page for entry in noted),
    )
    if file.digest is not None:
        return actual if digester.value(file.digest.algorithm) == file.digest.value else None
    is_noted = any((entry.size, entry.sha512) == (actual.size, actual.sha512) for entry in noted)
    return actual if is_noted else None


def names_below(folder: Path) -> frozenset[str]:
    """The paths of all files below the folder, relative to it."""
    below = ((Path(parent).relative_to(folder).as_posix(), names) for parent, _, names in os.walk(folder))
    return frozenset(
        name if within == "." else f"{within}/{name}" for within, names in below for name in names
    )


def adopt_part(workspace: Workspace, earlier: Sequence[Path], name: str, file: Row, attempt: Attempt) -> None:
    """Copy the longest part of `file` that an earlier attempt fetched to this attempt's `name`.

    The earlier parts are removed, so that a job that is often interrupted does not fill working storage. An
    attempt that still writes to one of them is over and cannot publish its bytes. `earlier`: the folders of
    the earlier attempts.
    """
    if not earlier:
        return
    own = workspace.attempt / name
    parts = [folder / name for folder in earlier]
    if not own.exists():
        _copy_longest([part for part in parts if _may_be_continued(part, file)], own, attempt)
    for part in parts:
        for path in (part, origin_path(part)):
            with suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()


def _may_be_continued(part: Path, file: Row) -> bool:
    """Whether a part is usable; without a declared digest a recorded one must rule out a power failure."""
    origin = saved_origin(part)
    if origin is None or not origin.may_be_continued(file.digest):
        return False
    return file.digest is not None or bool(origin.noted_sha512)


def _copy_longest(parts: list[Path], own: Path, attempt: Attempt) -> None:
    sizes = {part: part.stat().st_size for part in parts if part.is_file()}
    if not sizes:
        return
    longest = max(sizes, key=sizes.__getitem__)
    with suppress(FileNotFoundError):  # an attempt that is still running may just have completed the part
        origin_path(own).write_bytes(origin_path(longest).read_bytes())
        with longest.open("rb") as source, own.open("wb") as copy:
            while chunk := source.read(READ_CHUNK):
                attempt.check()
                copy.write(chunk)


def adopt_file(workspace: Workspace, name: str, folders: Iterable[Path], *others: Path) -> None:
    """Link a complete file of an earlier attempt, or one of `others`, to be checked by `reusable`."""
    own = workspace.attempt / name
    for earlier in (*(folder / name for folder in folders), *others):
        if own.exists():
            return
        workspace.make_folder(own.parent)
        with suppress(FileNotFoundError, NotADirectoryError):
            os.link(earlier, own)


def remove_unlisted(workspace: Workspace, files: tuple[DownloadedFile, ...]) -> None:
    """Remove everything but `files` from `producer/`."""
    listed = {file.path for file in files}
    for folder, folders, names in os.walk(workspace.producer, topdown=False):
        within = Path(folder).relative_to(workspace.producer).as_posix()
        start = "" if within == "." else f"{within}/"
        for name in names:
            if f"{start}{name}" not in listed:
                Path(folder, name).unlink()
        for name in folders:
            with suppress(OSError):  # not empty: the folder has files that stay
                Path(folder, name).rmdir()


def attempts_of(workspace: Workspace) -> list[Path]:
    """The folders of the job's attempts."""
    attempts = workspace.attempt.parent
    try:
        return sorted(attempts / name for name in os.listdir(attempts))  # noqa: PTH208 - runs in every job
    except FileNotFoundError:
        return []


def _journal_lines(attempts: Sequence[Path]) -> Iterator[DownloadedFile]:
    for attempt in attempts:
        try:
            lines = (attempt / JOURNAL).read_bytes().splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            with suppress(ValidationError):  # a crash truncated the last line
                yield DownloadedFile.model_validate_json(line)


def _digest(path: Path, algorithms: Iterable[str], attempt: Attempt) -> Digester | None:
    """Digests of the regular file at `path`; None if there is none."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
    except (FileNotFoundError, NotADirectoryError):
        return None
    return digest_file(path, algorithms, lambda _: attempt.check())
