import tracemalloc

import pytest

from pipeline.manifests.checkm import (
    HEADER_LIMIT,
    LINE_LIMIT,
    PROBLEM_LIMIT,
    ManifestError,
    ManifestProfile,
    parse,
)
from tests.support.manifests import BATCH, CONTAINERS, FILES, MD5, OBJECT, URL, manifest, problems

REFUSED_ROWS = {
    "no URL": ("| | | | | a", "the first column has no URL"),
    "a file URL": ("file:///etc/passwd", "http:// or https://"),
    "an ftp URL": ("ftp://x.edu/a", "http:// or https://"),
    "a mistyped scheme": ("hzzttps://x.edu/a", "http:// or https://"),
    "no scheme": ("x.edu/a", "http:// or https://"),
    "no host": ("https:///a", "names no host"),
    "a broken host": ("https://[::1/a", "the URL is not valid"),
    "a broken port": ("https://x.edu:port/a", "the URL is not valid"),
    "a blank in the URL": ("https://x.edu/a b", "write %20"),
    "a # in the URL": ("https://x.edu/img#1.tif", "write %23"),
    "a backslash in the URL": ("https://x.edu\\@y.edu/a", "write %20 or %5C"),
    "a long URL": (f"https://x.edu/{'a' * 9000}", "longer than 8192 characters"),
    "a login in the URL": ("https://me:secret@x.edu/a", "a user name or a password"),
    "no name anywhere": ("https://x.edu/", "the file name is missing"),
    "a name that leaves the folder": (f"{URL} ||||| ../../etc/passwd", "'..' segment"),
    "an absolute name": (f"{URL} ||||| /etc/passwd", "is absolute"),
    "an unknown algorithm": (f"{URL} | sha3 | {MD5}", "'sha3' is not known"),
    "an algorithm that is too weak": (f"{URL} | md2 | {MD5}", "'md2' is not known; use one of"),
    "an algorithm without a value": (f"{URL} | md5 |", "has no value"),
    "a value without an algorithm": (f"{URL} | | {MD5}", "has no algorithm"),
    "a short value": (f"{URL} | md5 | {MD5[:-1]}", "is not a value of md5"),
    "a value that is not hexadecimal": (f"{URL} | md5 | {'x' * 32}", "is not a value of md5"),
    "a negative size": (f"{URL} | | | -1", "'-1' is not a number of bytes"),
    "a size that no file has": (
        f"{URL} | | | 9007199254740993",
        "'9007199254740993' is one that no file has",
    ),
    "a size with a unit": (f"{URL} | | | 12 kB", "'12 kB' is not a number of bytes"),
    "a size in other digits": (f"{URL} | | | \u0661", "is not a number of bytes"),
    "a control character": (f"{URL} ||||| a\x07.jpg", "control character U+0007"),
    "a text too long": (f"{URL} ||||| a | {'x' * 4001}", "mrt:mimeType is longer than 4000"),
}


@pytest.mark.parametrize("case", REFUSED_ROWS)
def test_a_row_is_refused_with_its_line_for(case: str) -> None:
    line, said = REFUSED_ROWS[case]
    (problem,) = problems(manifest("https://x.edu/good", line))

    assert problem.startswith("line 4: ")
    assert said in problem


def test_a_secret_in_a_url_is_not_repeated() -> None:
    assert "secret" not in str(problems(manifest("https://me:secret@x.edu/a", "ftp://me:secret@x.edu/b")))


REFUSED_MANIFESTS = {
    "an empty one": (b"", "the manifest is empty"),
    "one of blank lines": (b"\n  \n\r\n", "the manifest is empty"),
    "one without rows": (manifest(), "the manifest has no rows"),
    "one that may be truncated": (manifest(URL, end=""), "the last line is not #%eof"),
    "rows after its end": (manifest(URL, end=f"#%eof\n{URL}"), "line 5: text follows after #%eof"),
    "a second end": (manifest(URL, end="#%eof\n#%eof"), "line 5: text follows after #%eof"),
    "headers without a profile": (
        f"#%checkm_0.7\n{URL}\n#%eof".encode(),
        "the line '#%profile | URI' is missing",
    ),
    "a profile in capitals": (
        manifest(URL, profile=OBJECT.replace("profile", "Profile")),
        "the line '#%profile | URI' is missing",
    ),
    "an unknown profile": (
        manifest(URL, profile="#%profile | http://x"),
        "'http://x' is not known; expected http://uc3.cdlib.org/registry/ingest/manifest/ followed by mrt-",
    ),
    "two profiles": (manifest(BATCH, URL), "line 3: a second #%profile"),
    "bytes that are not UTF-8": (manifest(URL) + b"\xff", "line 5: byte 1 is not UTF-8"),
    "UTF-16": (manifest(URL).decode().encode("utf-16"), "the manifest is UTF-16"),
    "many headers": (manifest(*["#%x"] * (HEADER_LIMIT + 1)), "more than 100 lines begin with #%"),
    "a line without end": (manifest(f"{URL} | {'x' * LINE_LIMIT}"), "line 3: the line is longer than"),
}


@pytest.mark.parametrize("case", REFUSED_MANIFESTS)
def test_a_manifest_is_refused_for(case: str) -> None:
    data, said = REFUSED_MANIFESTS[case]

    assert any(said in each for each in problems(data))


def test_a_primary_identifier_must_be_an_ark() -> None:
    (problem,) = problems(manifest(f"{URL} ||||| a | doi:10.5060/x", profile=BATCH))

    assert "line 3: primary identifier 'doi:10.5060/x' is not an ARK" in problem


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a", "a"), "line 4: the name 'a' is given twice, first on line 3"),
        (("a", "A"), "line 4: 'a' and 'A' differ only in upper and lower case, first on line 3"),
        (("a", "a/b"), "line 4: 'a' is a file and also the folder of another, first on line 3"),
    ],
)
def test_names_that_clash_in_an_object_are_refused(names: tuple[str, str], said: str) -> None:
    data = manifest(*(f"{URL} ||||| {name}" for name in names))

    assert problems(data) == [said]


def test_names_may_differ_in_case_where_that_is_allowed() -> None:
    data = manifest(f"{URL} ||||| a", f"{URL} ||||| A")

    assert len(parse(data, "test", case_fold=False).rows) == 2


def test_objects_of_a_batch_may_have_manifests_of_one_name() -> None:
    data = manifest("https://x.edu/1/a.checkm", "https://x.edu/2/a.checkm", profile=BATCH)

    assert len(parse(data, "test").rows) == 2


def test_another_profile_than_the_expected_is_refused_with_what_to_submit_it_as() -> None:
    (problem,) = problems(manifest("ftp://bad", profile=CONTAINERS), ManifestProfile.BATCH)

    assert problem == (
        "line 2: this is a mrt-container-batch-manifest (containers, one object each), but a "
        "mrt-batch-manifest (object manifests, one object each) is expected; submit it as type "
        "container-batch-manifest"
    )


def test_all_problems_are_told_in_the_order_of_the_lines() -> None:
    data = manifest("ftp://x.edu/a | md5 | | -1", URL, f"{URL} ||||| ../b", end="")

    assert [problem.partition(":")[0] for problem in problems(data)[1:]] == ["line 3"] * 3 + ["line 5"]


def test_the_message_names_the_manifest_the_first_problems_and_how_many_more() -> None:
    with pytest.raises(ManifestError) as caught:
        parse(manifest(*["ftp://x.edu/a"] * 5), "objects.checkm")
    message = str(caught.value)

    assert message.startswith("manifest objects.checkm: line 3: the URL does not begin")
    assert message.endswith("; and 2 more")
    assert len(caught.value.problems) == 5


def test_a_hostile_manifest_does_not_fill_the_memory_with_problems() -> None:
    found = problems(manifest(*["x"] * (PROBLEM_LIMIT * 2)))

    assert len(found) == PROBLEM_LIMIT + 1
    assert found[0] == f"reading stopped after {PROBLEM_LIMIT} problems"


def test_a_manifest_of_too_many_rows_is_refused_at_the_first_of_them() -> None:
    data = manifest(*[f"{URL} ||||| {n}" for n in range(4)])
    with pytest.raises(
        ManifestError, match="line 6: the manifest has more than 3 rows: divide it, or ask the operator"
    ):
        parse(data, "test", most=3)

    assert len(parse(data, "test", most=4).rows) == 4


@pytest.mark.parametrize("line", [b"\n", b"#\n", b"a\n", b"#%\n"])
def test_many_short_lines_do_not_fill_the_memory(line: bytes) -> None:
    data = line * 100_000
    tracemalloc.start()
    with pytest.raises(ManifestError):
        parse(data, "test", ManifestProfile.OBJECT, most=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            (f"{URL} ||||| a | | box 1", f"{URL} ||||| b | | box 1"),
            "line 3 has the same local id 'box 1'",
        ),
        ((f"{URL} ||||| a | | x;box%201", f"{URL} ||||| b | | box 1 ;y"), "the same local id 'box 1'"),
        (
            (
                f"{URL} ||||| a | ark:/99999/fk4abc",
                f"{URL} ||||| b | | z",
                f"{URL} ||||| c | ark:99999/fk4-abc",
            ),
            "line 3 has the same primary identifier 'ark:/99999/fk4abc'",
        ),
    ],
)
def test_two_rows_of_a_batch_with_one_identifier_are_refused(rows: tuple[str, ...], says: str) -> None:
    (told,) = [each for each in problems(manifest(*rows, profile=FILES)) if "the same" in each]

    assert says in told
    assert "they would become two versions of one object" in told


def test_one_identifier_twice_in_a_row_and_ids_that_differ_in_case_are_accepted() -> None:
    rows = f"{URL} ||||| a | | box;box", f"{URL}2 ||||| b | | Box", f"{URL}3 ||||| c | | bo x"

    assert len(parse(manifest(*rows, profile=FILES), "it").rows) == 3
