"""The lists and descriptions in a deposit: bag, manifest, deletions, embargo, ERC, Dublin Core, DataCite."""

import json
import shutil
from collections.abc import Mapping
from hashlib import sha512
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.attempt import UNATTENDED
from pipeline.decoding.server import FUNCTIONS
from pipeline.errors import ArklineError
from tests.support.fuzzing import BYTES, WORDS, lines, result_or_refusal

MD5 = "d41d8cd98f00b204e9800998ecf8427e"
"""Of an empty file."""

_TAGS = st.sampled_from(
    [
        *(
            "title",
            "dc:title",
            "creator",
            "identifier",
            "resource",
            "titles",
            "creators",
            "creatorName",
            "date",
        ),
        *("publicationYear", "publisher", "alternateIdentifier", "a:b"),
    ]
)
_SPACES = st.sampled_from(
    [
        *("", ' xmlns="http://purl.org/dc/elements/1.1/"', ' xmlns:dc="http://purl.org/dc/elements/1.1/"'),
        *(' xmlns="http://datacite.org/schema/kernel-4"', ' xmlns=""', ' a="1" a="2"', ' xml:lang="x"'),
    ]
)


def _element(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    parts = st.tuples(_TAGS, _SPACES, st.lists(inner, max_size=4).map("".join))
    return parts.map(lambda part: f"<{part[0]}{part[1]}>{part[2]}</{part[0]}>")


_MARKS = st.sampled_from(["&amp;", "&#0;", "&#x1F600;", "&e;", "<!--", "<![CDATA["])
XML = st.tuples(
    st.sampled_from(
        [
            "",
            "<?xml version='1.0'?>",
            "<?xml version='1.0' encoding='utf-16'?>",
            "<?xml version='1.0' encoding='x'?>",
            "<!DOCTYPE a [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>",
        ]
    ),
    st.recursive(
        st.one_of(WORDS, st.sampled_from(["&amp;", "&#0;", "&#x1F600;", "&e;", "<!--", "<![CDATA["])),
        _element,
    ),
).map(lambda pair: "".join(pair).encode("utf-8", "surrogatepass"))

_DEEP = st.integers(1, 20_000).map(lambda depth: b"<a>" * depth + b"</a>" * depth)
_PATHS = st.sampled_from(
    ["data/a", "a", "data/%0A", "./data/a", "data/..", "bag-info.txt", "*data/a", "producer/a"]
)

NAMES: Mapping[str, st.SearchStrategy[bytes]] = {
    "bagit.txt": lines(
        st.just("BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"),
        st.sampled_from(["BagIt-Version: ", "Tag-File-Character-Encoding: ", "utf-16", "iso-8859-1", "0.97"]),
        WORDS,
        most=3,
    ),
    "manifest-md5.txt": lines(st.sampled_from([MD5, " ", "\t"]), _PATHS, WORDS),
    "manifest-sha512.txt": lines(st.sampled_from(["0" * 128, " "]), _PATHS, WORDS),
    "tagmanifest-md5.txt": lines(st.sampled_from([MD5, " "]), _PATHS, WORDS),
    "fetch.txt": lines(
        st.sampled_from(["https://x.edu/a ", "upload:", " 0 ", " - ", "9" * 19, " "]), _PATHS, WORDS
    ),
    "bag-info.txt": lines(st.sampled_from(["Payload-Oxum: ", "1.1", "."]), WORDS),
    "mrt-manifest.txt": lines(
        st.sampled_from(["#%checkm_0.7\n", "#%eof\n", f"https://x.edu/a | md5 | {MD5} | 0 | | a |", " | "]),
        WORDS,
    ),
    "mrt-delete.txt": lines(_PATHS, WORDS),
    "mrt-embargo.txt": lines(
        st.sampled_from(
            ["embargoEndDate: ", "none", "2030-01-31", "T12:00:00Z", "9999-12-31T23:59:59+99:99"]
        ),
        WORDS,
    ),
    "mrt-erc.txt": lines(
        st.sampled_from(["erc:", "who: ", "what:", " ", "#", "where: ark:/99999/fk4a", "%"]), WORDS
    ),
    "mrt-dc.xml": st.one_of(XML, XML, _DEEP, BYTES),
    "mrt-datacite.xml": st.one_of(XML, XML, _DEEP, BYTES),
    "data/a": st.just(b""),
}

DEPOSITS = st.dictionaries(st.sampled_from(sorted(NAMES)), st.none(), min_size=1, max_size=4).flatmap(
    lambda names: st.fixed_dictionaries({name: NAMES[name] for name in names})
)


def written(deposit: Mapping[str, bytes], folders: pytest.TempPathFactory) -> Path:
    producer = folders.mktemp("fuzz")
    for name, data in deposit.items():
        (producer / name).parent.mkdir(exist_ok=True)
        (producer / name).write_bytes(data)
    return producer


def assert_can_be_sent(result: object) -> None:
    """As to the worker; lone surrogates would be refused here."""
    if not isinstance(result, ArklineError):
        sent = json.dumps(result).encode()
        sent.decode()
        assert len(sent) < 3_000_000


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(deposit=DEPOSITS)
def test_what_a_deposit_says_about_itself_is_read_or_refused(
    deposit: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    producer = written(deposit, tmp_path_factory)
    given = {"producer": str(producer), "deletes": True, "container": True, "bags": True}
    body = json.dumps(
        [(name, len(data), sha512(data).hexdigest()) for name, data in deposit.items()]
    ).encode()

    def read() -> list[object]:
        (producer / "mrt-delete.txt").touch()
        return list(FUNCTIONS["statements"](given, body, UNATTENDED))

    assert_can_be_sent(result_or_refusal(read))
    shutil.rmtree(producer)


_BAGS = st.fixed_dictionaries(
    {
        "bagit.txt": st.sampled_from(["0.97", "1.0"]).map(
            lambda version: f"BagIt-Version: {version}\nTag-File-Character-Encoding: UTF-8\n".encode()
        ),
        "manifest-md5.txt": st.lists(_PATHS, max_size=4, unique=True).map(
            lambda paths: "".join(f"{MD5}  {path}\n" for path in paths).encode()
        ),
        "fetch.txt": st.one_of(
            NAMES["fetch.txt"],
            st.lists(_PATHS, max_size=4).map(
                lambda paths: "".join(f"https://x.edu/a - {path}\n" for path in paths).encode()
            ),
        ),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(bag=_BAGS)
def test_a_list_of_files_to_fetch_is_read_or_refused(
    bag: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = written(bag, tmp_path_factory)
    given = {"folder": str(folder), "case_fold": True, "most": 3}
    body = json.dumps([(name, len(data)) for name, data in bag.items()]).encode()

    assert_can_be_sent(result_or_refusal(lambda: list(FUNCTIONS["fetch lists"](given, body, UNATTENDED))))
    shutil.rmtree(folder)
