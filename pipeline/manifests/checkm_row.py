"""One row of a Checkm manifest: its columns, their valid values, and how they are written.

Columns are read by position, as in Merritt; `%20` and `%7c` stand for a space and a | in every column but
the URL. Merritt has no way to write these escapes literally: for a row that contains them, the header PERCENT
declares that `%25` stands for a %.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import NoReturn, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import ValidationError

from pipeline import names
from pipeline.errors import Documented
from pipeline.fixity import LARGEST_FILE, Digest, UnknownAlgorithm, algorithm
from pipeline.names import (
    CONTAINER_SUFFIXES,
    PRODUCER,
    SCHEME,
    UnsafeName,
    is_ark,
    is_container,
    name_in,
    quote_name,
    safe_name,
    upload_problem,
)
from pipeline.records import SubmissionType

PROBLEM_LIMIT = 1000
"""Problems after which reading stops, so that a hostile manifest cannot fill the memory."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem on a line, counted from 1; line 0 is the manifest as a whole."""

    line: int
    message: str
    severity: Severity = Severity.ERROR
    column: str = ""
    """The manifest's column at fault, if it is one."""
    called: str = "line"
    """Or a row, of a table."""

    def __str__(self) -> str:
        return f"{self.called} {self.line}: {self.message}" if self.line else self.message


class StopReading(Exception):
    """Raised to skip the rest of the manifest."""


@dataclass
class Findings:
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def error(self, line: int, message: str, column: str = "") -> None:
        self.errors.append(Problem(line, message, column=column))
        if len(self.errors) >= PROBLEM_LIMIT:
            self.stop(0, f"reading stopped after {PROBLEM_LIMIT} problems")

    def stop(self, line: int, message: str) -> NoReturn:
        self.errors.append(Problem(line, message))
        raise StopReading

    def warn(self, line: int, message: str, column: str = "") -> None:
        if len(self.warnings) < PROBLEM_LIMIT:
            self.warnings.append(Problem(line, message, Severity.WARNING, column))

    def in_order(self) -> tuple[Problem, ...]:
        return tuple(sorted(self.errors + self.warnings, key=lambda problem: problem.line))


URL_LIMIT = 8192
"""Maximum characters of a URL, as in a job's configuration."""

TEXT_LIMIT = 4000
"""Maximum characters of any other column, as in a job's configuration."""

PERCENT = "#%percent | %25"
"""The header of a manifest in which `%25` stands for a %; arkline's own, for names such as `a%20b.pdf`."""

_ESCAPED = {"%20": " ", "%7c": "|", "%25": "%"}
_ESCAPE = re.compile("%(?:20|7c)")
_ESCAPE_WITH_PERCENT = re.compile("%(?:20|7c|25)")
_SIZE = re.compile(r"[0-9]{1,18}")
_MIME_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(\s*;.*)?", re.ASCII)

_Report = Callable[[str, str], None]
"""Takes a message and the column."""


class ManifestProfile(Documented):
    OBJECT = "mrt-ingest-manifest", "the files of one object"
    BATCH = "mrt-batch-manifest", "object manifests, one object each"
    CONTAINER_BATCH = "mrt-container-batch-manifest", "containers, one object each"
    FILE_BATCH = "mrt-single-file-batch-manifest", "files, one object each"

    @property
    def uri(self) -> str:
        return f"http://uc3.cdlib.org/registry/ingest/manifest/{self}"

    @property
    def submission_type(self) -> SubmissionType:
        return _SUBMITTED_AS[self]

    @classmethod
    def of(cls, kind: SubmissionType | None) -> Self | None:
        """The profile of manifests of this type; None if the type is no manifest's."""
        return next((known for known in cls if known.submission_type is kind), None)

    @property
    def columns(self) -> tuple[str, ...]:
        return _OBJECT_COLUMNS if self is ManifestProfile.OBJECT else _BATCH_COLUMNS


_SUBMITTED_AS = {
    ManifestProfile.OBJECT: SubmissionType.OBJECT_MANIFEST,
    ManifestProfile.BATCH: SubmissionType.BATCH_MANIFEST,
    ManifestProfile.CONTAINER_BATCH: SubmissionType.CONTAINER_BATCH_MANIFEST,
    ManifestProfile.FILE_BATCH: SubmissionType.SINGLE_FILE_BATCH_MANIFEST,
}

_FILE_COLUMNS = (
    "nfo:fileUrl",
    "nfo:hashAlgorithm",
    "nfo:hashValue",
    "nfo:fileSize",
    "nfo:fileLastModified",
    "nfo:fileName",
)
_OBJECT_COLUMNS = (*_FILE_COLUMNS, "mrt:mimeType")
_BATCH_COLUMNS = (
    *_FILE_COLUMNS,
    "mrt:primaryIdentifier",
    "mrt:localIdentifier",
    "mrt:creator",
    "mrt:title",
    "mrt:date",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One file of an object, or one object of a batch; `line` counts from 1."""

    line: int
    url: str
    name: str
    digest: Digest | None = None
    size: int | None = None
    mime_type: str = ""
    primary_id: str | None = None
    local_id: tuple[str, ...] = ()
    creator: str = ""
    title: str = ""
    date: str = ""


def read(profile: ManifestProfile, text: str, line: int, findings: Findings, *, percent: bool = False) -> Row:
    """The row in `text`; after an error only its name is usable. `percent`: the manifest has PERCENT."""
    url, *cells = (cell.strip(" \t") for cell in text.split("|"))
    extra = len(cells) + 1 - len(profile.columns)
    if extra > 0 and any(cells[-extra:]):
        findings.warn(
            line, f"cells after column {len(profile.columns)} are ignored; write the character | as %7c"
        )
    cells += [""] * -extra
    escape = _ESCAPE_WITH_PERCENT if percent else _ESCAPE
    decoded = (escape.sub(lambda match: _ESCAPED[match[0]], cell) for cell in cells)
    named = dict(zip(profile.columns[1:], decoded, strict=False))
    return of_cells(profile, url, named, line, findings)


def of_cells(
    profile: ManifestProfile, url: str, cell: Mapping[str, str], line: int, findings: Findings
) -> Row:
    """The row with these values: column name -> value, for every column but the URL."""
    error, warn = partial(findings.error, line), partial(findings.warn, line)
    too_long = next((name for name, value in cell.items() if len(value) > TEXT_LIMIT), None)
    if too_long:
        error(f"{too_long} is longer than {TEXT_LIMIT} characters", too_long)
    problem = url_problem(url)
    if problem:
        error(problem, "nfo:fileUrl")
    primary = cell.get("mrt:primaryIdentifier") or None
    if primary is not None and not is_ark(primary):
        message = f"primary identifier {quote_name(primary)} is not an ARK such as ark:/99999/fk4abc"
        error(message, "mrt:primaryIdentifier")
    mime_type = cell.get("mrt:mimeType", "")
    if mime_type and not _MIME_TYPE.fullmatch(mime_type):
        warn(f"{quote_name(mime_type)} is not a MIME type such as image/jpeg", "mrt:mimeType")
    name = ""
    if cell["nfo:fileName"] or not problem:
        name = _name(cell["nfo:fileName"] or name_in(url), error)
        _check_kind(profile, name, warn)
    return Row(
        line=line,
        url=url,
        name=name,
        digest=_digest(cell["nfo:hashAlgorithm"], cell["nfo:hashValue"], error),
        size=_size(cell["nfo:fileSize"], error),
        mime_type=mime_type,
        primary_id=primary,
        local_id=names.parse_local_ids(cell.get("mrt:localIdentifier", "")),
        creator=cell.get("mrt:creator", ""),
        title=cell.get("mrt:title", ""),
        date=cell.get("mrt:date", ""),
    )


def has_escapes(profile: ManifestProfile, row: Row) -> bool:
    """Whether the row has text that a reader would take for an escape, so that the manifest needs PERCENT."""
    return any(_ESCAPE.search(value) for value in _cells(profile, row))


def write(profile: ManifestProfile, row: Row, *, percent: bool = False) -> str:
    return " | ".join([row.url, *(encoded(value, percent) for value in _cells(profile, row))])


def _cells(profile: ManifestProfile, row: Row) -> list[str]:
    """The values of all columns but the URL."""
    cell = {
        "nfo:hashAlgorithm": row.digest.algorithm if row.digest else "",
        "nfo:hashValue": row.digest.value if row.digest else "",
        "nfo:fileSize": "" if row.size is None else str(row.size),
        "nfo:fileName": row.name,
        "mrt:mimeType": row.mime_type,
        "mrt:primaryIdentifier": row.primary_id or "",
        "mrt:localIdentifier": names.write_local_ids(row.local_id),
        "mrt:creator": row.creator,
        "mrt:title": row.title,
        "mrt:date": row.date,
    }
    return [cell.get(column, "") for column in profile.columns[1:]]


def encoded(text: str, percent: bool = False) -> str:
    """Encode a cell; leading and trailing spaces become %20, since a reader strips them."""
    if percent:
        text = text.replace("%", "%25")
    inner = text.strip(" ")
    at = text.find(inner) if inner else len(text)
    edges = ("%20" * at, "%20" * (len(text) - at - len(inner)))
    return edges[0] + inner.replace("|", "%7c") + edges[1]


def url_problem(url: str) -> str | None:
    """Why the URL is not valid; it is not quoted, since it may contain a secret."""
    if not url:
        return "the first column has no URL"
    if len(url) > URL_LIMIT:
        return f"the URL is longer than {URL_LIMIT} characters"
    if "#" in url:
        return "the URL contains a '#', and what follows it is never sent to a server: write %23"
    if not url.isprintable() or not {" ", "\\"}.isdisjoint(url):
        return "the URL contains a space, a backslash or an unprintable character; write %20 or %5C"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # the error's text may quote a password
        return "the URL is not valid: its host or its port cannot be read, or a sign needs an escape"
    return _address_problem(parts)


def _address_problem(parts: SplitResult) -> str | None:
    if parts.scheme == SCHEME:
        return upload_problem(parts.geturl())
    if parts.scheme not in ("http", "https"):
        return "the URL does not begin with http:// or https://, the only supported schemes"
    if not parts.hostname:
        return "the URL names no host"
    if parts.username is not None:
        return "the URL contains a user name or a password, which would be stored and shown; remove it"
    return None


def _name(name: str, error: _Report) -> str:
    if not name:
        error("the file name is missing, and the URL does not end in one", "nfo:fileName")
        return name
    try:
        return safe_name(name, PRODUCER)
    except UnsafeName as unsafe:
        error(str(unsafe), "nfo:fileName")
        return name


def _digest(name: str, value: str, error: _Report) -> Digest | None:
    if not name and not value:
        return None
    if not value:
        error(f"digest algorithm {quote_name(name)} has no value", "nfo:hashAlgorithm")
        return None
    if not name:
        error("a digest value has no algorithm", "nfo:hashValue")
        return None
    try:
        return Digest(algorithm=algorithm(name), value=value)
    except UnknownAlgorithm as unknown:
        error(str(unknown), "nfo:hashAlgorithm")
    except ValidationError:
        error(f"{quote_name(value)} is not a value of {algorithm(name)}", "nfo:hashValue")
    return None


def _size(text: str, error: _Report) -> int | None:
    if not text:
        return None
    if not _SIZE.fullmatch(text):
        error(f"file size {quote_name(text)} is not a number of bytes", "nfo:fileSize")
        return None
    if int(text) > LARGEST_FILE:
        error(f"file size {quote_name(text)} is one that no file has", "nfo:fileSize")
        return None
    return int(text)


def _check_kind(profile: ManifestProfile, name: str, warn: _Report) -> None:
    is_manifest = name.lower().endswith(".checkm")
    meant = ""
    if profile is ManifestProfile.CONTAINER_BATCH and not is_container(name):
        meant = f"is unpacked, although its name does not end in {' '.join(CONTAINER_SUFFIXES)}"
    elif profile is ManifestProfile.BATCH and not is_manifest:
        meant = "is read as an object manifest, although its name does not end in .checkm"
    elif profile is ManifestProfile.FILE_BATCH and (is_manifest or is_container(name)):
        meant = "is stored as one file; it is neither unpacked nor read as a manifest"
    if meant:
        warn(f"{quote_name(name)} {meant}", "nfo:fileName")
