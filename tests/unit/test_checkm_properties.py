import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.fixity import Digest
from pipeline.manifests.checkm import ManifestError, ManifestProfile, Row, Severity, check, parse, write
from tests.support.manifests import MANIFEST, MD5, URL


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(ManifestError):
        parse(data, "test", ManifestProfile.OBJECT)


HEADERS = ["#%profile", "#%eof", "#%fields", "#", MANIFEST, *ManifestProfile]
MARKS = [
    "|",
    "\n",
    "\r",
    " ",
    "\0",
    "\ud800",
    "%20",
    "%7c",
    "%sc",
    ";",
    "\ufeff",
    "\u00e9",
    "a",
    "md5",
    MD5,
    "-1",
]
ADDRESSES = ["https://", "http://[", "@", ":", "/", ".."]
PIECES = st.sampled_from([*HEADERS, *MARKS, *ADDRESSES])


@given(st.lists(PIECES, max_size=60), st.sampled_from([None, *ManifestProfile]))
def test_any_pieces_of_manifests_are_read_or_refused(
    pieces: list[str], expected: ManifestProfile | None
) -> None:
    data = "".join(pieces).encode("utf-8", "surrogatepass")
    errors = [each for each in check(data, expected) if each.severity is Severity.ERROR]
    refused = False
    try:
        parse(data, "test", expected)
    except ManifestError:
        refused = True

    assert refused is bool(errors)


TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="\ufffe\uffff"), max_size=20
)
DIGEST = st.one_of(
    st.none(), st.binary(min_size=16, max_size=16).map(lambda raw: Digest(algorithm="md5", value=raw.hex()))
)
SIZE = st.one_of(st.none(), st.integers(0, 1 << 50))
NAME = st.from_regex(r"[a-z |#][a-z0-9 .|]{0,15}\.zip", fullmatch=True)
OBJECT_ROWS = st.builds(
    Row,
    line=st.just(0),
    url=st.from_regex(r"https://x\.edu/[a-z0-9%?=]{1,30}", fullmatch=True),
    name=NAME,
    digest=DIGEST,
    size=SIZE,
    mime_type=TEXT,
)
BATCH_ROWS = st.builds(
    Row,
    line=st.just(0),
    url=st.just(URL),
    name=NAME,
    digest=DIGEST,
    size=SIZE,
    primary_id=st.sampled_from([None, "ark:/99999/fk4abc"]),
    local_id=st.lists(st.from_regex(r"[a-z:;]([a-z |;]{0,5}[a-z|;])?", fullmatch=True), unique=True).map(
        tuple
    ),
    creator=TEXT,
    title=TEXT,
    date=TEXT,
)


def unnumbered(rows: tuple[Row, ...]) -> list[Row]:
    return [dataclasses.replace(each, line=0) for each in rows]


@given(st.lists(OBJECT_ROWS, min_size=1, max_size=5, unique_by=lambda each: each.name.strip()))
def test_an_object_manifest_that_was_written_reads_back(rows: list[Row]) -> None:
    data = write(ManifestProfile.OBJECT, rows)

    assert unnumbered(parse(data, "test", case_fold=False).rows) == rows


def is_given_twice(rows: list[Row]) -> bool:
    """Whether two rows have one identifier."""
    arks, names = (
        [row.primary_id for row in rows if row.primary_id],
        [n for row in rows for n in row.local_id],
    )
    return len(set(arks)) < len(arks) or len(set(names)) < len(names)


@given(st.lists(BATCH_ROWS, min_size=1, max_size=5))
def test_a_batch_manifest_is_written_unless_two_rows_have_one_identifier(rows: list[Row]) -> None:
    refused = False
    try:
        write(ManifestProfile.CONTAINER_BATCH, rows)
    except ManifestError:
        refused = True

    assert refused is is_given_twice(rows)


@given(st.lists(BATCH_ROWS, min_size=1, max_size=5).filter(lambda rows: not is_given_twice(rows)))
def test_a_batch_manifest_that_was_written_reads_back(rows: list[Row]) -> None:
    data = write(ManifestProfile.CONTAINER_BATCH, rows)

    assert unnumbered(parse(data, "test").rows) == rows


@pytest.mark.parametrize("name", ["My%20Report.pdf", "a%7cb", "%2520", "100%", "%25", "%20", " %20 "])
def test_a_name_with_a_literal_escape_reads_back(name: str) -> None:
    (row,) = parse(write(ManifestProfile.OBJECT, [Row(0, URL, name)]), "test").rows

    assert row.name == name


def test_only_a_manifest_that_says_so_has_an_escape_for_the_percent_sign() -> None:
    """Merritt has none: in its manifests %2520 is %2520."""
    plain = write(ManifestProfile.OBJECT, [Row(0, URL, "a%2520b")])

    assert b"%percent" not in plain
    assert parse(plain, "test").rows[0].name == "a%2520b"


@pytest.mark.parametrize(
    "unwritable",
    [
        Row(0, URL, "a", mime_type="two\nlines"),
        Row(0, URL, "a", mime_type="a\t"),
        Row(0, URL, "a", title="an object manifest has no titles"),
        Row(0, "https://x.edu/a|b", "a"),
        Row(0, "ftp://x.edu/a", "a"),
        Row(0, URL, "a\ud800"),
        Row(0, URL, "../a"),
    ],
    ids=ascii,
)
def test_a_row_that_would_not_read_back_is_not_written(unwritable: Row) -> None:
    with pytest.raises(ManifestError):
        write(ManifestProfile.OBJECT, [Row(0, URL, "first"), unwritable])


def test_the_row_that_would_not_read_back_is_named() -> None:
    with pytest.raises(
        ManifestError,
        match="to be written: line 6: the row of 'a' would not read back from a manifest as it is",
    ):
        write(ManifestProfile.OBJECT, [Row(0, URL, "a", title="an object manifest has no titles")])
    with pytest.raises(ManifestError, match=r"to be written: line 6: file name '\.\./a' has a '\.'"):
        write(ManifestProfile.OBJECT, [Row(0, URL, "../a")])


def test_the_fuzzed_pieces_can_make_a_whole_manifest() -> None:
    """The property above would say little if nothing it tries were ever accepted."""
    data = "".join(["https://", "a", "/", "a", "\n", "#%eof"]).encode()

    assert parse(data, "x", ManifestProfile.OBJECT).rows
