"""Checkm manifests in Merritt's four profiles: parsed into values, checked before submission, and written.

Rule: there is one reader. `check` returns all problems; `parse` raises if one of them is an error.
"""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline import causes
from pipeline.errors import ArklineError
from pipeline.fixity import Digest, Digester
from pipeline.manifests import checkm_row
from pipeline.manifests.checkm_row import (
    PROBLEM_LIMIT,
    Findings,
    ManifestProfile,
    Problem,
    Row,
    Severity,
    StopReading,
)
from pipeline.names import EXAMINED, HTML, SIGN_IN, canonical_ark, duplicates, is_ark, is_web_page, quote_name
from pipeline.outcome import content
from pipeline.tables.content import TableFormat, format_of

_SIGNATURES = {
    b"PK\x03\x04": "a ZIP archive",
    b"PK\x05\x06": "an empty ZIP archive",
    b"\x1f\x8b": "an archive compressed by gzip",
    b"BZh": "an archive compressed by bzip2",
    b"\xfd7zXZ\x00": "an archive compressed by xz",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"%PDF-": "a PDF document",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89PNG": "a PNG image",
    b"II*\x00": "a TIFF image",
    b"MM\x00*": "a TIFF image",
}
_TAR = slice(257, 262)


def problem_of(data: bytes) -> str | None:
    """What the bytes are and how to submit them, if they are certainly not a manifest; else None."""
    head = data[:EXAMINED]
    spreadsheet = format_of(data) is not TableFormat.TEXT
    if not spreadsheet and (kind := _archive_or_file(head)):
        how = "with the type container" if "archive" in kind else "with the type file"
        return f"this is {kind}, not a manifest: submit it {how}"
    if is_web_page(head, HTML):  # no manifest begins with markup
        return (
            "this is a web page, not a manifest: give the address that downloads the manifest itself; "
            f"{SIGN_IN}"
        )
    if spreadsheet or _is_table(head):
        return "this is a table, not a manifest: convert it to a manifest first (manifest from-csv)"
    return None


def _archive_or_file(head: bytes) -> str | None:
    if head[_TAR] == b"ustar":
        return "a tar archive"
    return next((name for signature, name in _SIGNATURES.items() if head.startswith(signature)), None)


def _is_table(head: bytes) -> bool:
    """Whether the first line is a table's: it has cells, but is neither a header nor a row of a manifest."""
    first = next((line for line in head.decode("utf-8-sig", "replace").splitlines() if line.strip()), "")
    if first.startswith("#") or "|" in first or "://" in first:
        return False
    return any(first.count(delimiter) for delimiter in ",;\t")


HEADER_LIMIT = 100
"""Maximum lines that begin with #%; a manifest needs four."""

LINE_LIMIT = 1 << 17
"""Maximum bytes of a line; all columns at their own limits fit."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

# Characters that lists, mail and XML cannot contain.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    text: str


def read(data: bytes, most: int | None, findings: Findings) -> tuple[list[Line], list[Line]]:
    """Read the headers and the rows before `#%eof`, which must be the last line with text."""
    headers: list[Line] = []
    rows: list[Line] = []
    ended = False
    for number, raw in enumerate(_raw_lines(data, findings), 1):
        text = _text(number, raw, findings) if raw else ""
        if not text:
            continue
        if ended:
            findings.error(number, "text follows after #%eof")
            break
        ended = text[:5].lower() == "#%eof"
        if not text.startswith("#"):
            rows.append(Line(number, text))
            if most is not None and len(rows) > most:
                findings.stop(number, too_many_rows(most))
        elif text.startswith("#%") and not ended:
            headers.append(Line(number, text))
            if len(headers) > HEADER_LIMIT:
                findings.stop(number, f"more than {HEADER_LIMIT} lines begin with #%")
    if not (headers or rows or ended or findings.errors):
        findings.stop(0, "the manifest is empty")
    if not ended:
        findings.error(0, "the last line is not #%eof: the manifest may be truncated")
    return headers, rows


def too_many_rows(most: int) -> str:
    return (
        f"the manifest has more than {most:,} rows: divide it, or ask the operator for a higher limit "
        "(limits.batch_jobs for a batch, ARKLINE_OBJECT_FILES for an object)"
    )


def _raw_lines(data: bytes, findings: Findings) -> Iterator[bytes]:
    """Yield one line at a time, so that a manifest of many short lines does not fill the memory."""
    if problem := problem_of(data):
        findings.stop(0, problem)
    if data.startswith(_UTF16):
        findings.stop(0, "the manifest is UTF-16; save it as UTF-8")
    start = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    for end in _LINE_END.finditer(data):
        yield data[start : end.start()]
        start = end.end()
    yield data[start:]


def _text(number: int, raw: bytes, findings: Findings) -> str:
    """The line's text; empty if it cannot be decoded."""
    if len(raw) > LINE_LIMIT:
        findings.stop(number, f"the line is longer than {LINE_LIMIT} bytes")
    try:
        text = raw.decode().strip(" \t")
    except UnicodeDecodeError as error:
        findings.error(number, f"byte {error.start + 1} is not UTF-8; save the manifest as UTF-8")
        return ""
    if forbidden := _FORBIDDEN.search(text):
        findings.error(number, f"the line contains the control character U+{ord(forbidden[0]):04X}")
        return ""
    return text


__all__ = [
    "PROBLEM_LIMIT",
    "Manifest",
    "ManifestError",
    "ManifestProfile",
    "Problem",
    "ReadRows",
    "Row",
    "Severity",
    "check",
    "check_declared",
    "check_rows",
    "parse",
    "parse_rows",
    "repeated_identifiers",
    "too_many_rows",
    "write",
]

_PROBLEMS_SHOWN = 3
_PROFILE = re.compile(r"#%profile\b\s*\|?\s*(\S*)")
_REGISTRIES = ("http://uc3.cdlib.org/registry/ingest/manifest/", "http://uc3.cdlib.org/registry/mrt/")
_PROFILES = {registry + profile: profile for registry in _REGISTRIES for profile in ManifestProfile}


class ManifestError(ArklineError):
    """A manifest that is refused, with all its problems."""

    def __init__(self, source: str, problems: Sequence[Problem], called: str = "manifest") -> None:
        more = len(problems) - _PROBLEMS_SHOWN
        rest = f"; and {more} more" if more > 0 else ""
        super().__init__(f"{called} {source}: {'; '.join(map(str, problems[:_PROBLEMS_SHOWN]))}{rest}")
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Manifest:
    profile: ManifestProfile
    rows: tuple[Row, ...]


ReadRows = Callable[[bytes, str, ManifestProfile, bool, int | None], Iterable[Row]]
"""`parse_rows`, in this or another process; rows may be streamed, and a refusal comes with the first row."""


def parse(
    data: bytes,
    source: str,
    expected: ManifestProfile | None = None,
    case_fold: bool = True,
    most: int | None = None,
    repeats: bool = False,
) -> Manifest:
    """The manifest in `data`, with at most `most` rows; `source` names it in messages.

    With `expected`, another profile is refused and a manifest without any header is accepted.
    `repeats`: several rows may have the same identifier.
    """
    manifest, findings = _read(data, expected, case_fold, most, repeats)
    if findings.errors or manifest is None:
        raise ManifestError(source, [p for p in findings.in_order() if p.severity is Severity.ERROR])
    return manifest


def parse_rows(
    data: bytes, source: str, expected: ManifestProfile, case_fold: bool = True, most: int | None = None
) -> tuple[Row, ...]:
    """Like `parse`, for a submission's manifest: StepFailed(content) if it is refused.

    Several rows may have the same identifier: `pipeline.manifests.split` decides whether that is allowed.
    """
    try:
        return parse(data, source, expected, case_fold, most, repeats=True).rows
    except ManifestError as error:
        raise content(str(error)) from error


def check_declared(data: bytes, name: str, size: int | None, digest: Digest | None) -> None:
    """StepFailed(content) unless the manifest has its declared size and digest."""
    if size not in (None, len(data)):
        raise content(
            f"manifest {name} has {len(data):,} bytes, but {size:,} were declared: submit it again with the "
            "correct size"
        ).because(causes.SIZE_DIFFERS(declared=size, received=len(data)))
    if digest is not None:
        digester = Digester((digest.algorithm,))
        digester.update(data)
        if mismatch := digest.mismatch(digester.value(digest.algorithm), f"manifest {name}"):
            failure = content(f"{mismatch}: submit it again with the correct digest")
            raise failure.because(causes.DIGEST_DIFFERS())


def check(
    data: bytes, expected: ManifestProfile | None = None, case_fold: bool = True, most: int | None = None
) -> tuple[Problem, ...]:
    """The errors for which `parse` would refuse the manifest, and warnings, in line order."""
    _, findings = _read(data, expected, case_fold, most)
    return findings.in_order()


def write(profile: ManifestProfile, rows: Iterable[Row]) -> bytes:
    """A manifest that reads back as these rows; ManifestError if a row would not."""
    given = tuple(rows)
    percent = any(checkm_row.has_escapes(profile, row) for row in given)
    lines = [
        "#%checkm_0.7",
        f"#%profile | {profile.uri}",
        *([checkm_row.PERCENT] if percent else ()),
        "#%prefix | mrt: | http://merritt.cdlib.org/terms#",
        "#%prefix | nfo: | http://www.semanticdesktop.org/ontologies/2007/03/22/nfo#",
        " | ".join(["#%fields", *profile.columns]),
    ]
    start = len(lines) + 1
    lines += [checkm_row.write(profile, row, percent=percent) for row in given]
    data = "\n".join([*lines, "#%eof", ""]).encode("utf-8", "surrogatepass")
    back = parse(data, "to be written", profile, case_fold=False).rows
    numbered = tuple(replace(row, line=start + index) for index, row in enumerate(given))
    if back != numbered:
        different = next((a for a, b in zip(numbered, back, strict=False) if a != b), numbered[-1])
        message = f"the row of {quote_name(different.name)} would not read back from a manifest as it is"
        raise ManifestError("to be written", [Problem(different.line, message)])
    return data


def _read(
    data: bytes, expected: ManifestProfile | None, case_fold: bool, most: int | None, repeats: bool = False
) -> tuple[Manifest | None, Findings]:
    findings = Findings()
    try:
        headers, lines = read(data, most, findings)
        profile = _profile(headers, expected, findings)
        _check_headers(headers, profile, findings)
        if not lines and not findings.errors:
            findings.stop(0, "the manifest has no rows")
        lines.reverse()  # lines are dropped as rows are made: together they would take twice the memory
        percent = any(line.text == checkm_row.PERCENT for line in headers)
        rows = tuple(
            checkm_row.read(profile, *_next(lines), findings, percent=percent) for _ in range(len(lines))
        )
        check_rows(profile, rows, case_fold, findings, repeats)
    except StopReading:
        return None, findings
    return Manifest(profile, rows), findings


def _next(lines: list[Line]) -> tuple[str, int]:
    line = lines.pop()
    return line.text, line.number


def _profile(headers: list[Line], expected: ManifestProfile | None, findings: Findings) -> ManifestProfile:
    named = [(line, match[1]) for line in headers if (match := _PROFILE.match(line.text))]
    known = f"{_REGISTRIES[0]} followed by {', '.join(ManifestProfile)}"
    if not named:
        if expected is not None and not headers:
            return expected
        findings.stop(0, f"the line '#%profile | URI' is missing; the URI is {known}")
    for line, uri in named:
        if uri not in _PROFILES:
            findings.stop(line.number, f"profile {quote_name(uri)} is not known; expected {known}")
        if _PROFILES[uri] is not _PROFILES[named[0][1]]:
            findings.stop(line.number, "a second #%profile contradicts the first")
    line, uri = named[0]
    actual = _PROFILES[uri]
    if expected is not None and actual is not expected:
        findings.stop(
            line.number,
            f"this is a {actual} ({actual.doc}), but a {expected} ({expected.doc}) is expected; "
            f"submit it as type {actual.submission_type.label}",
        )
    return actual


def _check_headers(headers: list[Line], profile: ManifestProfile, findings: Findings) -> None:
    for header in ("#%checkm", "#%prefix", "#%fields"):
        if not any(line.text.startswith(header) for line in headers):
            findings.warn(0, f"the line {header} is missing")
    for line in headers:
        fields = tuple(cell.strip(" \t") for cell in line.text.split("|")[1:])
        if line.text.startswith("#%fields") and fields[: len(profile.columns)] != profile.columns:
            findings.warn(
                line.number,
                "#%fields is ignored: the columns are read as " + " | ".join(profile.columns),
            )


def check_rows(
    profile: ManifestProfile,
    rows: Sequence[Row],
    case_fold: bool,
    findings: Findings,
    repeats: bool = False,
    called: str = "lines",
) -> None:
    """Report conflicts between rows that are valid on their own. `called`: their places, in messages."""
    place = called.removesuffix("s")
    if profile is ManifestProfile.OBJECT:
        named = [row for row in rows if row.name]
        for clash in duplicates((row.name for row in named), case_fold):
            first, second = named[clash.first], named[clash.second]
            findings.error(second.line, f"{clash.reason}, first on {place} {first.line}")
    else:
        times = Counter(row.url for row in rows)
        lines: dict[tuple[str, str], int] = {}
        for row in rows:
            for message in (
                () if repeats else repeated_identifiers(row.local_id, row.primary_id, row.line, lines, called)
            ):
                findings.error(row.line, message)
            if times[row.url] > 1:
                findings.warn(
                    row.line, f"its URL is on {times[row.url]} {called}: every {place} makes an object"
                )
    undeclared = sum(row.digest is None for row in rows)
    if undeclared:
        rows_in_all = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
        findings.warn(
            0,
            f"no digest is declared in {undeclared} of {rows_in_all}: a transfer error would not be detected",
        )


def repeated_identifiers(
    local_id: Iterable[str],
    primary_id: str | None,
    place: int,
    places: dict[tuple[str, str], int],
    called: str = "lines",
) -> Iterator[str]:
    """Messages about identifiers of the object at `place` that an earlier object of the batch also has.

    `places`: identifier -> place, for the earlier objects; this object's are added. `called`: the places.
    """
    named = [("local id", name) for name in local_id]
    if primary_id and is_ark(primary_id):
        named.append(("primary identifier", canonical_ark(primary_id)))
    for kind, name in named:
        if (first := places.setdefault((kind, name), place)) != place:
            yield (
                f"{called.removesuffix('s')} {first} has the same {kind} {quote_name(name)}: they would "
                "become two versions of one object; give each object an identifier of its own"
            )
