"""A deposit of files on this machine: its objects, and the files to upload.

A folder is one object or, on request, one object per file. A CSV table is a batch: a row without a URL names
a file beside the table.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from operations.deposits.chosen_files import ChosenFiles, left_out, missing
from operations.deposits.planned import NamedObject, ObjectFile, as_named, of_row
from operations.deposits.submission import submission_type
from pipeline.containers.unpack import folders_without_files
from pipeline.decoding import calls
from pipeline.decoding.decoder import Decoder
from pipeline.errors import UsageRefused
from pipeline.file_system import empty_folders
from pipeline.fixity import Digest, digest_file
from pipeline.manifests import checkm, from_csv
from pipeline.manifests.checkm import ManifestError, ManifestProfile, Problem, Row
from pipeline.manifests.from_csv import Converted
from pipeline.names import (
    COMPOSED_OTHERWISE,
    UnsafeName,
    UploadAddress,
    duplicates,
    foreign_upload,
    is_container,
    is_upload,
    parse_upload_url,
    quote_name,
    safe_name,
)
from pipeline.outcome import StepFailed
from pipeline.records import Submission, SubmissionType
from pipeline.settings import Settings
from pipeline.tables.content import NO_CHOICE, Choice, TableContent
from pipeline.tables.text import looks_like_table

FILES = "files/"
"""The prefix, in the upload, of the depositor's files."""

TABLES = (".csv", ".tsv", ".tab", ".xlsx", ".xlsm", ".xls", ".ods")
"""The suffixes of tables."""

TABLE_EXAMINED = 1 << 16
"""Bytes at the beginning and at the end of a file from which a table is recognized."""

EXAMINED = 10_000
"""Maximum files whose names are compared with one that is missing."""

_PLACEHOLDER = "0" * 32
"""Stands for the upload's id until the upload begins."""


@dataclass(frozen=True)
class LocalFile:
    path: Path
    name: str
    """The file's name in the upload."""
    size: int

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """The file, for reading within the block; UsageRefused if it cannot be read."""
        with _reading(self.path), self.path.open("rb") as stream:
            yield stream

    def digest(self, algorithm: str) -> Digest:
        """The digest of its bytes; UsageRefused if they cannot be read."""
        with _reading(self.path):
            return Digest(algorithm=algorithm, value=digest_file(self.path, (algorithm,)).value(algorithm))


@dataclass(frozen=True)
class LocalDeposit:
    source: Path
    type: SubmissionType
    objects: int
    files: tuple[LocalFile, ...]
    rows: tuple[Row, ...] = ()
    """Rows of the manifest to write; empty if the only file is the payload."""
    listed: tuple[Row, ...] = ()
    """Rows of the batch manifest that is the payload."""
    hidden: tuple[str, ...] = ()
    """Files whose names begin with a dot: uploaded, but often unintended."""
    empty: tuple[str, ...] = ()
    """Folders without files, which are not deposited."""
    left_out: tuple[str, ...] = ()
    """Files that the operating system made for itself, which are not deposited."""
    remarks: tuple[str, ...] = ()
    """What the depositor should look at in the table."""

    @property
    def is_table(self) -> bool:
        return bool(self.rows) and not self.source.is_dir()

    @property
    def name(self) -> str:
        """The folder's, the table's or the file's."""
        return self.source.resolve().name

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    def named(self, submission: Submission, *, read: bool = False) -> tuple[NamedObject, ...]:
        """The objects for the judge. `read`: compute the digests of files for which one is declared."""
        rows = self.rows or self.listed
        if self.type.is_batch:
            return tuple(self._of_row(number, row, submission, read) for number, row in enumerate(rows, 1))
        if self.rows:
            files = tuple(self._file(row, read) for row in self.rows)
        else:
            payload = Row(0, "", self.source.name, submission.digest, submission.size)
            files = (self._file(payload, read, self.files[0]),)
        return (as_named(submission, files, self.source.name),)

    def _of_row(self, number: int, row: Row, submission: Submission, read: bool) -> NamedObject:
        """The object of a row of a batch; the files of an object manifest are not known."""
        is_manifest = self.type is SubmissionType.BATCH_MANIFEST
        described = replace(
            row,
            title=row.title or submission.erc_what,
            creator=row.creator or submission.erc_who,
            date=row.date or submission.erc_when,
        )
        payload = parse_upload_url(row.url).name if is_upload(row.url) else row.url
        return of_row(described, number, payload, None if is_manifest else (self._file(row, read),))

    def _file(self, row: Row, read: bool, local: LocalFile | None = None) -> ObjectFile:
        if local is None and is_upload(row.url):
            local = self._by_name.get(parse_upload_url(row.url).name)
        return ObjectFile(
            name=row.name,
            size=row.size,
            digest=row.digest,
            found_size=local.size if local else None,
            found_digest=local.digest(row.digest.algorithm) if read and local and row.digest else None,
            to_upload=local is not None,
        )

    @cached_property
    def _by_name(self) -> dict[str, LocalFile]:
        return {file.name: file for file in self.files}


def plan_deposit(
    source: Path,
    kind: SubmissionType | None = None,
    *,
    object_per_file: bool = False,
    all_files: bool = False,
    choice: Choice = NO_CHOICE,
    settings: Settings | None = None,
) -> LocalDeposit:
    """What a deposit of `source` consists of; UsageRefused or ManifestError if it cannot be deposited.

    `all_files`: files of a folder that the operating system made for itself are deposited, too.
    `choice`: for a table. `settings`: the limits of a spreadsheet's decoder.
    """
    if source.is_dir():
        return _folder(source, kind, object_per_file=object_per_file, all_files=all_files)
    if not source.exists():
        raise UsageRefused(f"'{source}' is neither a URL nor a file or folder of this machine")
    if object_per_file:
        raise UsageRefused(
            f"'{source}' is no folder: --object-per-file makes an object of each file of a folder"
        )
    if kind in (SubmissionType.FILE, SubmissionType.CONTAINER) or not _may_be_table(source):
        return _file(source, kind)
    if kind is None and not source.name.lower().endswith(TABLES):
        raise UsageRefused(
            f"'{source}' looks like a table: add --type {SubmissionType.SINGLE_FILE_BATCH_MANIFEST.label} to "
            "make an object of each row, or --type file to store the table as it is"
        )
    return _table(source, kind, read_table(_read(source), source.name, choice, settings), choice)


def read_table(data: bytes, name: str, choice: Choice, settings: Settings | None) -> TableContent:
    """The table in `data`, with a decoder of its own if it is a spreadsheet."""
    with closing(Decoder(settings or Settings())) as decoder:
        return calls.read_table(decoder, data, name, choice)


def with_container_read(deposit: LocalDeposit, settings: Settings | None = None) -> LocalDeposit:
    """Add the empty folders in the deposit's container; UsageRefused if the container cannot be read.

    `settings`: None if the limits of the site are not known here.
    """
    if deposit.type is not SubmissionType.CONTAINER:
        return deposit
    source, limits = deposit.source, (sys.maxsize, sys.maxsize)
    if settings is not None:
        limits = settings.object_files, settings.object_bytes
    try:
        return replace(deposit, empty=folders_without_files(source, source.name, *limits))
    except StepFailed as unreadable:
        raise UsageRefused(unreadable.message) from unreadable
    except OSError as error:
        raise UsageRefused(f"'{source}' cannot be read: {error}") from error


def _file(source: Path, kind: SubmissionType | None) -> LocalDeposit:
    name = _checked(source.name)
    kind = submission_type("", kind, name)
    profile = ManifestProfile.of(kind)
    listed: tuple[Row, ...] = ()
    if profile is not None and profile is not ManifestProfile.OBJECT:
        listed = checkm.parse(_read(source), quote_name(name), profile).rows
    return LocalDeposit(source, kind, len(listed) or 1, (_local(source, name),), listed=listed)


def _folder(
    source: Path, kind: SubmissionType | None, *, object_per_file: bool, all_files: bool
) -> LocalDeposit:
    expected = (
        SubmissionType.SINGLE_FILE_BATCH_MANIFEST if object_per_file else SubmissionType.OBJECT_MANIFEST
    )
    if kind not in (None, expected):
        raise UsageRefused(
            f"'{source}' is a folder: leave --type out to make it one object, or add --object-per-file to "
            "make an object of each of its files"
        )
    paths = {path.relative_to(source).as_posix(): path for path in sorted(_below(source))}
    omitted = () if all_files else left_out(paths, one_object=not object_per_file)
    for name in omitted:
        del paths[name]
    if not paths:
        raise UsageRefused(f"folder '{source}' has no files: there is nothing to deposit")
    names = list(map(_checked, paths))
    if clash := next(iter(duplicates(names, case_fold=False)), None):
        raise UsageRefused(f"folder '{source}': {clash.reason}; rename one of them")
    files = tuple(_local(path, FILES + name) for path, name in zip(paths.values(), names, strict=True))
    rows = tuple(Row(line=0, url=_address(file), name=name) for file, name in zip(files, names, strict=True))
    hidden = tuple(name for name in names if any(part.startswith(".") for part in name.split("/")))
    objects = len(rows) if object_per_file else 1
    return LocalDeposit(
        source,
        expected,
        objects,
        files,
        rows,
        hidden=hidden,
        empty=empty_folders(source),
        left_out=omitted,
    )


def _below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise UsageRefused(f"{error.filename} cannot be read: {error.strerror}") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        for name in (*folders, *names):
            path = Path(parent, name)
            if path.is_symlink():
                raise UsageRefused(f"'{path}' is a symbolic link: replace it by the file, or remove it")
            if name in names and not path.is_file():
                raise UsageRefused(f"'{path}' is no regular file: remove it")
        yield from (Path(parent, name) for name in names)


def _may_be_table(source: Path) -> bool:
    """Whether it is a table by its suffix, or by its content."""
    if source.name.lower().endswith(TABLES):
        return True
    with _reading(source), source.open("rb") as file:
        return reads_as_table(source.name, file)


def reads_as_table(name: str, file: BinaryIO) -> bool:
    """Whether the content is a table of objects, unless the name's suffix says that it is something else."""
    if name.lower().endswith(".checkm") or is_container(name):
        return False
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(TABLE_EXAMINED)
    file.seek(max(len(head), size - TABLE_EXAMINED))
    return looks_like_table(head, file.read())


def _table(source: Path, kind: SubmissionType | None, table: TableContent, choice: Choice) -> LocalDeposit:
    """The deposit of a table: by default an object per row, of a container if all rows name containers."""
    profile = ManifestProfile.of(kind)
    if kind is None:
        profile = from_csv.batch_profile(table)
    if profile is None:
        raise UsageRefused(
            f"'{source}' is a table: its type is that of a manifest, or file to store the table"
        )
    converted, files = _convert(source, table, profile, choice)
    objects = 1 if profile is ManifestProfile.OBJECT else len(converted.rows)
    return LocalDeposit(
        source, profile.submission_type, objects, files, converted.rows, remarks=converted.remarks
    )


def _convert(
    source: Path, table: TableContent, profile: ManifestProfile, choice: Choice
) -> tuple[Converted, tuple[LocalFile, ...]]:
    files, composed = dict[str, LocalFile](), list[str]()
    present = cache(lambda: _files_below(source.parent))

    def find(given: str) -> tuple[str, str]:
        """The address in the upload of a file beside the table; ValueError if there is none."""
        name = safe_name(Path(given).as_posix())
        path = source.parent / name
        if path.is_symlink() or not path.is_file():
            other = present().find(name)
            if not other:
                raise ValueError(missing(name, "in the folder of the table", present().near(name)))
            composed.append(
                f"{quote_name(name)} {COMPOSED_OTHERWISE} from {quote_name(other)}, which is there"
            )
            name, path = other, source.parent / other
        file = files.setdefault(name, _local(path, FILES + name))
        return _address(file), name

    converted = from_csv.convert(table, profile, case_fold=False, named=choice.columns, find=find)
    own = set(map(_address, files.values()))
    foreign = (
        Problem(row.line, problem, called="row")
        for row in converted.rows
        if row.url not in own and (problem := foreign_upload(row.url, ""))
    )
    if errors := (*converted.errors, *foreign):
        raise ManifestError(str(source), errors, called="table")
    more = f" (and {len(composed) - 1:,} more)" if len(composed) > 1 else ""
    remarks = (*converted.remarks, *(f"{first}{more}" for first in composed[:1]))
    return replace(converted, remarks=remarks), tuple(files.values())


def _files_below(folder: Path) -> ChosenFiles:
    """The files that a table in this folder may mean: of many, the first EXAMINED that are found."""
    paths = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    examined = islice((path for path in paths if not path.is_symlink()), EXAMINED)
    return ChosenFiles(sorted(path.relative_to(folder).as_posix() for path in examined))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageRefused(f"{path} cannot be read: {error.strerror}") from error


def _read(path: Path) -> bytes:
    with _reading(path):
        return path.read_bytes()


def _checked(name: str) -> str:
    try:
        return safe_name(name, FILES)
    except UnsafeName as error:
        raise UsageRefused(f"{error}: rename it") from error


def _local(path: Path, name: str) -> LocalFile:
    with _reading(path):
        return LocalFile(path, name, path.stat().st_size)


def _address(file: LocalFile) -> str:
    return UploadAddress(_PLACEHOLDER, file.name).url
