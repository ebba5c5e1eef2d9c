"""The requests that steps send to a decoder."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline import causes
from pipeline.attempt import UNATTENDED, Attempt
from pipeline.containers import bag, declared
from pipeline.containers.declared import ConfirmedDigest
from pipeline.containers.unpack import Limits
from pipeline.decoding import server
from pipeline.decoding.decoder import Decoder, Request
from pipeline.description import metadata
from pipeline.description.metadata import Elements
from pipeline.fixity import Digest
from pipeline.manifests import lines
from pipeline.manifests.checkm import ManifestProfile, ReadRows, Row, parse_rows
from pipeline.names import quote_name
from pipeline.outcome import StepFailed, caused_by
from pipeline.states import FailureKind
from pipeline.tables import text
from pipeline.tables.content import (
    NO_CHOICE,
    Choice,
    Sheet,
    TableContent,
    TableFormat,
    TableRow,
    TableUnreadable,
    arrange,
    format_of,
)
from pipeline.tables.remarks import Remark, RemarkKind
from pipeline.working_storage.workspace import DownloadedFile

SMALL_MANIFEST = 64 * 1024
"""Maximum bytes of a manifest that is parsed in this process: our own reader takes linear time, a tenth of a
second for that many bytes, and 10 MB."""

_DESCRIBING = (metadata.EMBARGO, metadata.ERC, metadata.DUBLIN_CORE, metadata.DATACITE)


PASSES = 16
"""Times that a file of a deposit is read at most: a bag lists the file once per digest, in two files."""


@dataclass(frozen=True)
class Statements:
    """The statements of a deposit's files about the deposit."""

    checks: tuple[str, ...] = ()
    """A sentence for every statement that was verified."""
    remarks: tuple[str, ...] = ()
    """Notes for the depositor to check, although nothing is wrong."""
    digests: tuple[ConfirmedDigest, ...] = ()
    deletions: tuple[str, ...] = ()
    elements: Elements = metadata.NO_ELEMENTS

    def with_digests(self, files: tuple[DownloadedFile, ...]) -> tuple[DownloadedFile, ...]:
        """The files with the digests that the deposit itself declares."""
        known = {digest.path: digest for digest in self.digests}
        return tuple(known[file.path].of(file) if file.path in known else file for file in files)


@caused_by(causes.CONTAINER_INVALID())
def unpack(  # noqa: PLR0913 - the facts of one container
    decoder: Decoder,
    path: Path,
    name: str,
    target: Path,
    limits: Limits,
    attempt: Attempt,
    admit: Callable[[int], int] | None = None,
) -> tuple[DownloadedFile, ...]:
    """See pipeline.containers.unpack; `admit` as in Request."""
    arguments = {"path": str(path), "name": name, "target": str(target), "limits": asdict(limits)}
    subject = f"container {quote_name(name)}"
    request = Request(
        "unpack",
        subject,
        arguments,
        most=(limits.bytes, limits.entries),
        file_bytes=limits.bytes,
        admit=admit,
        writes=str(target.parent),
        reads=(str(path),),
    )
    return tuple(_file(*values) for values in decoder.decode(request, attempt))


def _file(path: str, size: int, sha512: str, name_encoding: str, raw_name: str) -> DownloadedFile:
    return DownloadedFile(path=path, size=size, sha512=sha512, name_encoding=name_encoding, raw_name=raw_name)


@caused_by(causes.LISTS_INVALID())
def read_fetch_lists(
    decoder: Decoder,
    folder: Path,
    files: tuple[DownloadedFile, ...],
    attempt: Attempt,
    *,
    case_fold: bool,
    most: int,
) -> tuple[bag.ToFetch, ...]:
    """See bag.files_to_fetch; `files` were unpacked below `folder`."""
    if not bag.has_fetch_list({file.path for file in files}):
        return ()
    arguments = {"folder": str(folder), "case_fold": case_fold, "most": most}
    body = json.dumps([(file.path, file.size) for file in files]).encode()
    subject = "the fetch.txt of a bag"
    request = Request("fetch lists", subject, arguments, body, _most(files), reads=(str(folder),))
    return tuple(
        bag.ToFetch(path, url, size, Digest(algorithm=algorithm, value=value), where)
        for path, url, size, algorithm, value, where in decoder.decode(request, attempt)
    )


def _most(files: tuple[DownloadedFile, ...]) -> tuple[int, int]:
    return PASSES * sum(file.size for file in files), PASSES * len(files)


@caused_by(causes.LISTS_INVALID())
def read_statements(  # noqa: PLR0913 - the facts of one deposit
    decoder: Decoder,
    producer: Path,
    files: tuple[DownloadedFile, ...],
    attempt: Attempt,
    *,
    container: bool,
    folder: bool = False,
    update: bool,
) -> Statements:
    """The statements in the files of `producer`; StepFailed(content) if one is false or cannot be read.

    `folder`: the files were deposited one by one, and may be those of a bag.
    """
    names = {file.path for file in files}
    deletes = update and lines.DELETION_LIST in names
    bags = any(map(bag.may_declare, names)) if container else folder and bag.DECLARATION in names
    if not (deletes or bags or (container and declared.NAME in names) or not names.isdisjoint(_DESCRIBING)):
        return Statements()
    arguments = {"producer": str(producer), "container": container, "bags": bags, "deletes": deletes}
    body = json.dumps([(file.path, file.size, file.sha512) for file in files]).encode()
    subject = "the lists and descriptions in the deposit"
    request = Request("statements", subject, arguments, body, _most(files), reads=(str(producer),))
    return _collected(decoder, request, attempt)


def _collected(decoder: Decoder, request: Request, attempt: Attempt) -> Statements:
    checks, remarks, deletions, digests = list[str](), list[str](), list[str](), list[ConfirmedDigest]()
    elements = Elements({}, {})
    for kind, name, *values in decoder.decode(request, attempt):
        match kind:
            case server.CHECK:
                checks.append(name)
            case server.REMARK:
                remarks.append(name)
            case server.DELETION:
                deletions.append(name)
            case server.DIGEST:
                algorithm, value, place = values
                digests.append(ConfirmedDigest(name, Digest(algorithm=algorithm, value=value), place))
            case server.ERC:
                elements.erc[name] = tuple(values[0])
            case _:
                elements.dublin_core[name] = tuple(values[0])
    return Statements(tuple(checks), tuple(remarks), tuple(digests), tuple(deletions), elements)


def manifest_reader(decoder: Decoder, attempt: Attempt) -> ReadRows:
    """Like checkm.parse_rows, but the rows of a large manifest are streamed.

    The decoder is in use until the last row has been read.
    """

    def read(
        data: bytes, source: str, profile: ManifestProfile, case_fold: bool, most: int | None
    ) -> Iterable[Row]:
        if len(data) <= SMALL_MANIFEST:
            return parse_rows(data, source, profile, case_fold, most)
        arguments = {"source": source, "profile": str(profile), "case_fold": case_fold, "most": most}
        request = Request("manifest", f"manifest {source}", arguments, data)
        return (_row(*values) for values in decoder.decode(request, attempt))

    return read


def _row(values: dict[str, Any], digest: list[str] | None) -> Row:
    known = Digest(algorithm=digest[0], value=digest[1]) if digest else None
    return Row(**values | {"local_id": tuple(values["local_id"])}, digest=known)


PICTURE_MEMORY = 900_000_000
"""Maximum bytes of memory for a picture; few are made at a time, and only by web processes."""


@dataclass(frozen=True)
class Picture:
    """A stored image in a size for a page, as WebP."""

    width: int
    height: int
    pages: int
    """Of the image; the picture is of the first."""
    data: str
    """Base64."""


class NoPicture(Exception):
    """Why an image has no picture."""


def make_picture(decoder: Decoder, path: Path, name: str, attempt: Attempt) -> Picture:
    """See pipeline.decoding.picture; NoPicture if the image is damaged, too large or unknown."""
    subject = f"picture {quote_name(name)}"
    request = Request("picture", subject, {"path": str(path)}, reads=(str(path),), memory=PICTURE_MEMORY)
    try:
        ((first, *more),) = decoder.decode(request, attempt)
    except StepFailed as failed:
        if failed.kind is not FailureKind.CONTENT:
            raise
        raise NoPicture("it needs more memory or processor time than a preview may use") from failed
    if not more:
        raise NoPicture(first)
    return Picture(first, *more)


def read_table(
    decoder: Decoder,
    data: bytes,
    name: str,
    choice: Choice = NO_CHOICE,
    attempt: Attempt = UNATTENDED,
) -> TableContent:
    """The table in `data`, whose format is recognized by its content; TableUnreadable names it.

    Our own reader of text takes linear time and needs no decoder.
    """
    kind = format_of(data)
    if kind is not TableFormat.TEXT:
        return arrange(_read_spreadsheet(decoder, data, name, kind, choice.sheet, attempt), choice)
    try:
        return arrange(text.read_sheet(data, choice.columns), choice)
    except TableUnreadable as error:
        raise TableUnreadable(error.reason, error.row, name) from error


def _read_spreadsheet(
    decoder: Decoder, data: bytes, name: str, kind: TableFormat, sheet: str, attempt: Attempt
) -> Sheet:
    arguments = {"format": kind, "sheet": sheet, "name": name}
    rows, remarks = list[TableRow](), list[Remark]()
    try:
        (sheets, chosen), *cells = decoder.decode(
            Request("table", f"table {quote_name(name)}", arguments, data), attempt
        )
    except StepFailed as failed:
        if failed.kind is not FailureKind.CONTENT:
            raise
        raise TableUnreadable(failed.message) from failed
    for first, *values in cells:
        if isinstance(first, int):
            rows.append(TableRow(first, tuple(values[0])))
        else:
            remarks.append(Remark(RemarkKind(first), *values))
    return Sheet(kind, tuple(rows), tuple(remarks), sheets=tuple(sheets), name=chosen)
