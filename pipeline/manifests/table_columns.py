"""The columns of a table, found by the names that people give them."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.fixity import HEX_LENGTH
from pipeline.manifests.checkm import ManifestProfile
from pipeline.manifests.checkm_problems import Findings
from pipeline.names import quote_name

NOT_USED = "nfo:fileLastModified"
"""A column of manifests that Merritt does not use."""

_ALGORITHM, _DIGEST = "nfo:hashAlgorithm", "nfo:hashValue"
_USUAL_NAMES = {
    "nfo:fileUrl": ("url", "uri", "link", "address", "location"),
    _ALGORITHM: ("algorithm", "digestalgorithm", "checksumalgorithm", "checksumtype"),
    _DIGEST: ("digest", "checksum", "hash"),
    "nfo:fileSize": ("size", "bytes"),
    "nfo:fileName": ("name", "path", "file"),
    "mrt:mimeType": ("mime", "contenttype", "mediatype"),
    "mrt:primaryIdentifier": ("ark",),
    "mrt:localIdentifier": ("localid", "id", "identifier", "callnumber", "shelfmark"),
    "mrt:creator": ("author", "artist", "who"),
    "mrt:title": ("what",),
    "mrt:date": ("year", "when"),
}


@dataclass(frozen=True)
class Column:
    """A column of the table as a column of the manifest."""

    name: str = ""
    """Empty: the column is left out."""
    algorithm: str = ""
    """Of a column of digests that is called by their algorithm, such as MD5."""
    titled: bool = True


def identify(
    titles: Sequence[str],
    profile: ManifestProfile,
    named: Mapping[str, str],
    line: int,
    findings: Findings,
    url_from: Sequence[str],
) -> tuple[Column, ...]:
    """The columns of the header row `titles`, in its order; what is wrong with them is in `findings`.

    `named`: title -> the manifest's column, as a person gave it; an empty name leaves the column out.
    `url_from`: the columns of which one must be there.
    """
    known = _known(profile)
    chosen = {plain(title): name for title, name in named.items()}
    for title in named:
        if plain(title) not in map(plain, titles):
            findings.error(line, f"the table has no column {quote_name(title)}")
    columns: list[Column] = []
    for title in titles:
        asked = chosen.get(plain(title), title)
        column = known.get(plain(asked), Column(titled=bool(title)))
        if asked and not column.name:
            findings.error(line, _unknown(asked, profile, known))
        if column.name and (earlier := _place(column, columns)) is not None:
            findings.error(line, _twice(column, titles[earlier], title))
        columns.append(column)
    names = [column.name for column in columns]
    if not set(url_from) & set(names) and not findings.errors:
        findings.error(line, f"column {' or '.join(map(title_of, url_from))} is missing")
    if NOT_USED in names:
        findings.warn(line, f"column {title_of(NOT_USED)} is not used")
    return tuple(columns)


def values(columns: Sequence[Column], cells: Sequence[str]) -> dict[str, str]:
    """Column of the manifest -> the cell; a digest of a column such as MD5 has its algorithm."""
    given: dict[str, str] = {}
    for column, cell in zip(columns, cells, strict=False):
        if column.name:
            given[column.name] = cell
        if column.algorithm and cell:
            given[_ALGORITHM] = column.algorithm
    return given


def titles_of(profile: ManifestProfile) -> str:
    return ", ".join(title_of(column) for column in profile.columns if column != NOT_USED)


def title_of(column: str) -> str:
    return column.partition(":")[2]


def plain(title: str) -> str:
    """`nfo:fileUrl`, `File URL` and `file_url` are one column."""
    return re.sub(r"[\s_-]", "", title.lower()).rpartition(":")[2]


def _known(profile: ManifestProfile) -> dict[str, Column]:
    names = {plain(column): Column(column) for column in profile.columns}
    usual = {
        usual: Column(name)
        for name, several in _USUAL_NAMES.items()
        for usual in several
        if name in profile.columns
    }
    return {**usual, **{plain(name): Column(_DIGEST, name) for name in HEX_LENGTH}, **names}


def _place(column: Column, columns: Sequence[Column]) -> int | None:
    same = (place for place, earlier in enumerate(columns) if earlier.name == column.name)
    return next(same, None)


def _twice(column: Column, first: str, second: str) -> str:
    name = title_of(column.name)
    if plain(first) == plain(second):
        return f"column {name} is there twice"
    return (
        f"{quote_name(first)} and {quote_name(second)} are both the column {name}: leave one of them out "
        f"(--column {quote_name(second + '=')})"
    )


def _unknown(title: str, profile: ManifestProfile, known: Mapping[str, Column]) -> str:
    near = difflib.get_close_matches(plain(title), known, 1)
    meant = f"did you mean {title_of(known[near[0]].name)}?" if near else f"columns: {titles_of(profile)}"
    noun = profile.submission_type.label
    return f"{quote_name(title)} is not a column of {'an' if noun[0] in 'aeiou' else 'a'} {noun}; {meant}"
