import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.names import (
    ARK_PATTERN,
    DEPTH_LIMIT,
    PRODUCER,
    Clash,
    NotAnArk,
    UnsafeName,
    UsedNames,
    canonical_ark,
    check_deposit_name,
    duplicates,
    is_ark,
    is_container,
    is_web_page,
    name_in,
    quote_name,
    safe_name,
    spellings,
)

SAFE = [
    "a",
    "a.txt",
    "folder/a.txt",
    ".hidden",
    "...",
    "a b",
    " a ",
    "~a",
    "C:a",
    "%2e%2e",
    "caf\u00e9.txt",
    "cafe\u0301.txt",
    "\u6587\u5b57/\U0001f600",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with a non-joiner
    "\u05d0\u200f.txt",  # Hebrew, with a mark of direction
    "hand\u00adbook.pdf",  # a soft hyphen, from a title that was copied
    "\u0915\u094d\u200d\u0937",  # Hindi, with a joiner
    "\u2764\ufe0f",
    "\U0001f469\u200d\U0001f52c",
    "\U0001f3f4\U000e0067\U000e0062\U000e007f",  # a flag
    "\u845b\U000e0100",  # a variant of a Chinese character
    "e" * 255,
    "/".join(["e" * 200] * 5),
]
UNSAFE = {
    "": "is empty",
    "/a": "is absolute",
    "/": "is absolute",
    "..": "'..'",
    "../a": "'..'",
    "a/../b": "'..'",
    "a/..": "'..'",
    ".": "'.'",
    "./a": "'.'",
    "a//b": "empty segment",
    "a/": "empty segment",
    "a\\b": "backslash",
    "..\\a": "backslash",
    "a\0b": "U+0000",
    "a\nb": "U+000A",
    "a\tb": "U+0009",
    "a\x7fb": "U+007F",
    "a\x85b": "U+0085",
    "a\u2028b": "U+2028",
    "a\ud800b": "U+D800",
    "a\uffffb": "U+FFFF",
    "e" * 256: "255 bytes",
    "\u00e9" * 128: "255 bytes",
    "/".join(["e" * 205] * 5): "1024 bytes",
    "/".join("a" * (DEPTH_LIMIT + 1)): "folders deep",
}


@pytest.mark.parametrize("name", SAFE)
def test_a_safe_name_is_kept_exactly_as_it_was_given(name: str) -> None:
    assert safe_name(name) == name


@pytest.mark.parametrize("name", UNSAFE, ids=ascii)
def test_an_unsafe_name_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UnsafeName) as caught:
        safe_name(name)

    assert UNSAFE[name] in str(caught.value)


def test_the_folder_that_a_name_will_stand_in_counts() -> None:
    long = "/".join(["e" * 200] * 5)

    assert safe_name(long, PRODUCER) == long
    with pytest.raises(UnsafeName, match="1024 bytes"):
        safe_name(f"{long}/{'e' * 15}", PRODUCER)
    with pytest.raises(UnsafeName, match="folders deep"):
        safe_name("/".join("a" * DEPTH_LIMIT), PRODUCER)


@pytest.mark.parametrize("name", ["Nachlass Müller 1911/", "a\u00a0b", "नमस्ते", "\u0645\u06cc\u200c\u062e"])
def test_a_deposit_may_have_any_name_that_people_can_read(name: str) -> None:
    check_deposit_name(name)


@pytest.mark.parametrize("name", [" \u00a0", "a\nb", "a\x00b", "\u202egnp.exe", "a\ud800"], ids=ascii)
def test_a_deposits_name_that_would_change_a_display_is_refused(name: str) -> None:
    with pytest.raises(UnsafeName, match="the deposit's name '"):
        check_deposit_name(name)


@given(st.text(max_size=40))
def test_a_name_that_passes_stays_below_its_folder(name: str) -> None:
    try:
        safe_name(name)
    except UnsafeName as error:
        str(error).encode()  # the message can be written anywhere
    else:
        assert not name.startswith("/")
        assert not {"", ".", ".."} & set(name.split("/"))
        assert len(name.encode()) <= 1024


def test_a_name_is_shown_on_one_line_and_not_for_ever() -> None:
    assert quote_name("a\nb\ud800") == "'a\\u000ab\\ud800'"
    assert quote_name("x" * 500) == f"'{'x' * 200}...'"


def test_names_that_stand_side_by_side_do_not_clash() -> None:
    assert duplicates(["a", "b/a", "b/c/a", "ab", "a.b"]) == ()


def test_a_name_given_twice_clashes_with_its_first() -> None:
    assert duplicates(["a", "b", "a"]) == (Clash(0, 2, "the name 'a' is given twice"),)


def test_every_repetition_is_told() -> None:
    assert [(clash.first, clash.second) for clash in duplicates(["a", "a", "a"])] == [(0, 1), (0, 2)]


def test_names_that_differ_in_case_clash_unless_case_counts() -> None:
    (clash,) = duplicates(["xt_MARK.h", "xt_mark.h"])

    assert clash.reason == "'xt_MARK.h' and 'xt_mark.h' differ only in upper and lower case"
    assert duplicates(["xt_MARK.h", "xt_mark.h"], case_fold=False) == ()


def test_names_that_differ_in_composition_clash_even_if_case_counts() -> None:
    (clash,) = duplicates(["caf\u00e9", "cafe\u0301"], case_fold=False)

    assert "composed" in clash.reason


@pytest.mark.parametrize(
    "names", [["a", "a/b"], ["a/b", "a"], ["a", "a/b/c"], ["a/b/c", "a"], ["A", "a/b"], ["a/b", "A"]]
)
def test_a_name_cannot_be_a_file_and_a_folder(names: list[str]) -> None:
    (clash,) = duplicates(names)

    assert (clash.first, clash.second) == (0, 1)
    assert "is a file and also the folder of another" in clash.reason


@given(
    st.lists(st.text("aAéÉ\u0301/", min_size=1, max_size=6), max_size=8, unique=True),
    st.booleans(),
)
def test_names_compared_all_at_once_clash_as_they_do_one_after_another(
    names: list[str], case_fold: bool
) -> None:
    used = UsedNames(case_fold)

    one_by_one = [clash for name in names if (clash := used.add(name)) is not None]

    assert list(duplicates(names, case_fold)) == one_by_one


def test_folders_count_too() -> None:
    taken = UsedNames()
    for name in ("a/b/c", "a/d", "e"):
        taken.add(name)

    assert taken.count == 5


def test_many_deep_names_are_compared_in_little_time() -> None:
    start = time.perf_counter()
    duplicates(f"{'folder/' * 20}{n}" for n in range(20_000))

    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("name", ["a.zip", "a.ZIP", "a.tar", "a.tar.gz", "a.tgz", "a.tar.bz2"])
def test_a_container_is_known_by_its_name(name: str) -> None:
    assert is_container(name)


@pytest.mark.parametrize("name", ["a", "zip", "a.gz", "a.bz2", "a.rar", "a.zip.txt", "a.tar.xz"])
def test_other_names_are_no_containers(name: str) -> None:
    assert not is_container(name)


def test_the_spellings_of_an_ark_are_one() -> None:
    written = (
        "ark:/99999/fk4x",
        "ark:99999/fk4x",
        "ARK:/99999/fk4x",
        " ark:/99999/fk4x ",
        "ark:/99999/fk-4x",
    )

    assert {canonical_ark(each) for each in written} == {"ark:/99999/fk4x"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fk4x",
        "ark:/99999/",
        "ark:/9999/x",
        "ark:/99999/a b",
        "doi:10.5072/x",
        "ark:/99999/..",
        "ark:/99999/fk4/./x",
        "ark:/99999/a//b",
        "ark:/99999/-",
        "ark:/99999/a?b",
        "ark:/99999/a\\b",
        "ark:/99999/" + "x" * 201,
    ],
)
def test_what_is_not_an_ark_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(NotAnArk, match="expected the form ark:/99999/fk4abc"):
        canonical_ark(text)


def test_an_ark_with_hyphens_has_its_older_spelling_too() -> None:
    assert spellings("ark:99999/fk4-x") == ("ark:/99999/fk4x", "ark:/99999/fk4-x")


@pytest.mark.parametrize("text", ["ark:/99999/fk4abc", "ark:99999/fk4abc", "ark:/99999/fk4abc/part.x"])
def test_an_ark_is_known(text: str) -> None:
    assert is_ark(text)


@pytest.mark.parametrize(
    "text",
    ["", "doi:10.5060/x", "ark:/99/x", "ark:/99999/", "ark:/99999/a b", "x ark:/99999/a", "ark:/99999/a\n"],
)
def test_what_is_no_ark_is_known(text: str) -> None:
    assert not is_ark(text)


@pytest.mark.parametrize(
    "text",
    ["ark:/99999/fk4\u212a", "ark:/99999/fk4\u017f", "ar\u212a:/99999/fk4a", f"ark:/{5 * chr(0x669)}/fk4a"],
)
def test_a_text_that_only_looks_like_an_ark_is_none(text: str) -> None:
    with pytest.raises(NotAnArk):
        canonical_ark(text)
    assert not re.search(ARK_PATTERN, text)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://x.edu/a/b.jpg", "b.jpg"),
        ("https://x.edu/a/b.jpg?version=2#top", "b.jpg"),
        ("https://x.edu/a%20b%C3%A9.jpg", "a b\u00e9.jpg"),
        ("https://x.edu/a%2Fb.jpg", "a%2Fb.jpg"),
        ("https://x.edu/a/", ""),
        ("https://x.edu", ""),
        ("https://[broken/a", ""),
        ("https://x.edu/%FF", "%FF"),
    ],
)
def test_a_url_ends_in_a_name_or_in_none(url: str, name: str) -> None:
    assert name_in(url) == name


@pytest.mark.parametrize("start", [b"", b"<?xml version='1.0'?>", b"\xff\xfe"])
def test_many_comments_before_what_is_no_web_page_are_read_in_little_time(start: bytes) -> None:
    began = time.perf_counter()

    assert not is_web_page(start + 500 * b"<!---->" + b"<svg>")
    assert not is_web_page(start + 20 * b"<!---->" + b"<!-- without an end")

    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("start", [b"", b"<?xml version='1.0'?>\n"])
def test_comments_before_a_web_page_are_passed_over(start: bytes) -> None:
    assert is_web_page(start + b" <!-- a > b --> <!-- <svg> -->\n<html>")
