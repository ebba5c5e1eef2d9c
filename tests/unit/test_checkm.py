import pytest

from pipeline.fixity import Digest
from pipeline.manifests.checkm import (
    ManifestProfile,
    Problem,
    Row,
    Severity,
    check,
    parse,
    write,
)
from tests.support.manifests import BATCH, CONTAINERS, FILES, MANIFEST, MD5, OBJECT, URL, manifest, problems


def row(*rows: str, profile: str = OBJECT) -> Row:
    """The first of these rows, as it is read."""
    return parse(manifest(*rows, profile=profile), "test").rows[0]


def warnings(data: bytes) -> list[str]:
    return [str(problem) for problem in check(data) if problem.severity is Severity.WARNING]


def test_the_columns_of_an_object_manifest_are_read_by_position() -> None:
    read = row(f"{URL} | md5 | {MD5} | 119255 | 2009-09-01 | folder/a.jpg | image/jpeg")

    assert read == Row(
        line=3,
        url=URL,
        name="folder/a.jpg",
        digest=Digest(algorithm="md5", value=MD5),
        size=119255,
        mime_type="image/jpeg",
    )


def test_the_columns_of_a_batch_manifest_are_read_by_position() -> None:
    line = f"{URL} | | | 5 | | a.checkm | ark:/99999/fk4a | l-1; l-2 | Tracy | A title | 2009"
    read = row(line, profile=BATCH)

    assert read == Row(
        line=3,
        url=URL,
        name="a.checkm",
        size=5,
        primary_id="ark:/99999/fk4a",
        local_id=("l-1", "l-2"),
        creator="Tracy",
        title="A title",
        date="2009",
    )


@pytest.mark.parametrize("profile", ManifestProfile)
@pytest.mark.parametrize("registry", [MANIFEST, "http://uc3.cdlib.org/registry/mrt/"])
@pytest.mark.parametrize("bar", [" | ", "|", " ", "\t|  "])
def test_every_profile_is_known_in_every_spelling(profile: ManifestProfile, registry: str, bar: str) -> None:
    data = manifest("https://x.edu/a.zip", profile=f"#%profile{bar}{registry}{profile}")

    assert parse(data, "test").profile is profile


def test_columns_that_are_missing_are_empty() -> None:
    assert row(URL) == Row(line=3, url=URL, name="a.jpg")


def test_columns_that_are_too_many_are_not_read_but_told() -> None:
    line = f"{URL} | | | | | a.jpg | image/jpeg | | more"

    assert row(line) == Row(line=3, url=URL, name="a.jpg", mime_type="image/jpeg")
    assert any("cells after column 7 are ignored" in each for each in warnings(manifest(line)))
    assert not any("are ignored" in each for each in warnings(manifest(f"{URL} | | | | | a.jpg | | | ")))


def test_a_file_without_a_name_has_that_of_its_url() -> None:
    assert row("https://x.edu/a/b%20c.jpg?v=1").name == "b c.jpg"


def test_blanks_and_bars_are_decoded_but_not_in_the_url() -> None:
    read = row("https://x.edu/a%20b%7cc | | | | | a.checkm | | | Who%20%7c%7C | %20x%20 |", profile=BATCH)

    assert (read.url, read.creator, read.title) == ("https://x.edu/a%20b%7cc", "Who |%7C", " x ")


def test_local_ids_are_named_once_and_may_hold_a_semicolon() -> None:
    assert row(f"{URL} ||||| a | | b;b; a%sc1 ", profile=BATCH).local_id == ("b", "a;1")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_end_will_do(end: str) -> None:
    text = manifest(URL, f"{URL} |||||b").decode().replace("\n", end)

    assert [each.line for each in parse(text.encode(), "test").rows] == [3, 4]


def test_a_byte_order_mark_is_skipped() -> None:
    assert parse(b"\xef\xbb\xbf" + manifest(URL), "test") == parse(manifest(URL), "test")


def test_comments_and_empty_lines_are_skipped() -> None:
    rows = parse(manifest("", "# a comment", URL, "  \t", "#another"), "test").rows

    assert [each.line for each in rows] == [5]


@pytest.mark.parametrize("end", ["#%eof", "#%EOF", "#%eof\n\n  \n", "#%eof and more", "#%eof\r\n"])
def test_the_last_line_with_text_ends_the_manifest(end: str) -> None:
    assert len(parse(manifest(URL, end=end), "test").rows) == 1


def test_what_the_manifest_says_of_its_columns_is_not_followed_but_told() -> None:
    fields = "#%fields | nfo:fileName | nfo:fileUrl"

    assert row(fields, URL).url == URL
    assert any("#%fields is ignored" in each for each in warnings(manifest(fields, URL)))


def test_without_any_header_the_profile_is_the_one_expected() -> None:
    data = f"{URL}\n#%eof".encode()

    assert parse(data, "test", ManifestProfile.OBJECT).profile is ManifestProfile.OBJECT
    assert "the line '#%profile | URI' is missing" in problems(data)[0]


def test_a_check_finds_the_same_errors_as_the_reader() -> None:
    data = manifest("ftp://x.edu/a", f"{URL} ||||| ../b")
    errors = [str(each) for each in check(data) if each.severity is Severity.ERROR]

    assert errors == problems(data)


def test_a_good_manifest_passes_the_check_without_a_word() -> None:
    digest = Digest(algorithm="md5", value=MD5)
    data = write(
        ManifestProfile.OBJECT, [Row(0, URL, "a.jpg", digest=digest, size=1, mime_type="image/jpeg")]
    )

    assert check(data, ManifestProfile.OBJECT) == ()


WARNED = {
    "rows without a digest": (manifest(URL), "no digest is declared in 1 of 1 row"),
    "missing headers": (manifest(URL), "the line #%fields is missing"),
    "a strange MIME type": (manifest(f"{URL} ||||| a | jpeg"), "line 3: 'jpeg' is not a MIME type"),
    "a batch row that is no manifest": (
        manifest(f"{URL} ||||| a.jpg", profile=BATCH),
        "line 3: 'a.jpg' is read as an object manifest",
    ),
    "a container of another name": (
        manifest(f"{URL} ||||| 4711", profile=CONTAINERS),
        "line 3: '4711' is unpacked, although its name does not end in .zip .tar .tar.gz",
    ),
    "a container kept as a file": (
        manifest(f"{URL} ||||| a.zip", profile=FILES),
        "line 3: 'a.zip' is stored as one",
    ),
    "a manifest kept as a file": (
        manifest(f"{URL} ||||| a.checkm", profile=FILES),
        "line 3: 'a.checkm' is stored as one file",
    ),
    "one URL for two objects": (manifest(URL, URL, profile=FILES), "line 4: its URL is on 2 lines"),
}


@pytest.mark.parametrize("case", WARNED)
def test_a_check_warns_of(case: str) -> None:
    data, said = WARNED[case]
    parse(data, "test")

    assert any(said in each for each in warnings(data))


def test_a_problem_of_the_whole_manifest_has_no_line() -> None:
    assert str(Problem(0, "the manifest is empty")) == "the manifest is empty"
