import hashlib
import logging
import tempfile
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import bagit
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.containers.bag import check_bags
from pipeline.fixity import HEX_LENGTH
from pipeline.names import duplicates
from pipeline.outcome import StepFailed
from tests.support.unpacked import arrived, refusal, storable, unpacked_container

PAYLOAD = {"a.txt": b"alpha", "sub/b c.txt": b"beta", "empty": b""}

logging.getLogger("bagit").setLevel(logging.CRITICAL)


def a_bag(folder: Path, algorithms: tuple[str, ...] = ("md5", "sha512")) -> Path:
    """A bag of PAYLOAD, made by an independent library."""
    unpacked_container(folder, PAYLOAD)
    bagit.make_bag(str(folder), checksums=list(algorithms))
    return folder


def by_hand(version: str = "1.0", /, **changes: bytes | None) -> dict[str, bytes]:
    """A bag of one file as its text; `changes` replace or remove files, `__` for a slash, `_` for a dash."""
    digest = hashlib.sha256(b"alpha").hexdigest()
    files: dict[str, bytes | None] = {
        "bagit.txt": f"BagIt-Version: {version}\nTag-File-Character-Encoding: UTF-8\n".encode(),
        "data/a.txt": b"alpha",
        "manifest-sha256.txt": f"{digest}  data/a.txt\n".encode(),
        **{name.replace("__", "/").replace("_", "-") + ".txt": data for name, data in changes.items()},
    }
    return {name: data for name, data in files.items() if data is not None}


def is_valid_for_the_library(folder: Path) -> bool:
    try:
        bagit.Bag(str(folder)).validate()
    except bagit.BagError:
        return False
    return True


def is_valid(folder: Path) -> bool:
    try:
        return len(check_bags(arrived(folder))) == 1
    except StepFailed:
        return False


def test_content_without_a_declaration_is_no_bag(tmp_path: Path) -> None:
    assert (
        check_bags(unpacked_container(tmp_path, {"data/a.txt": b"", "bagit.txt": b"notes about a tool\n"}))
        == ()
    )


@pytest.mark.parametrize(
    "declaration",
    [
        b"Tag-File-Character-Encoding: UTF-8\nBagIt-Version: 0.97\n",
        b"\nBagIt-Version: 0.97\nTag-File-Character-Encoding: UTF-8\n",
        b"BagIt-Version : 0.97\nTag-File-Character-Encoding : UTF-8\n",
        b" BagIt-Version: 0.97\nTag-File-Character-Encoding: UTF-8\n",
    ],
)
def test_a_bag_that_a_library_knows_is_checked(declaration: bytes, tmp_path: Path) -> None:
    unpacked_container(tmp_path, by_hand(bagit=declaration))
    assert is_valid_for_the_library(tmp_path)

    assert len(check_bags(arrived(tmp_path))) == 1


def test_a_declaration_in_an_encoding_that_it_may_not_have_is_named(tmp_path: Path) -> None:
    text = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-16\n"

    unpacked = unpacked_container(tmp_path, by_hand(bagit=text.encode("utf-16")))

    assert "'bagit.txt' is not text" in refusal(lambda: check_bags(unpacked))


@pytest.mark.parametrize("encoding", ["windows-1252", "latin1", "UTF-16LE", "ISO-8859-15"])
def test_lists_are_read_in_the_encoding_that_a_bag_declares(encoding: str, tmp_path: Path) -> None:
    digest = hashlib.sha256(b"alpha").hexdigest()
    text = f"{digest}  data/a.txt\n{digest}  data/\u00fc.txt\n".encode(encoding)
    declaration = f"BagIt-Version: 1.0\nTag-File-Character-Encoding: {encoding}\n".encode()
    files = by_hand(bagit=declaration, manifest_sha256=text) | {"data/\u00fc.txt": b"alpha"}

    assert len(check_bags(unpacked_container(tmp_path, files))) == 1


@pytest.mark.parametrize(
    "info",
    [
        "External-Description: text\n  Payload-Oxum: 77.7 was before\nPayload-Oxum: 5.1\n",
        "Payload-Oxum:\n\t5.1\n",
    ],
)
def test_values_of_bag_info_may_continue_in_the_next_line(info: str, tmp_path: Path) -> None:
    assert len(check_bags(unpacked_container(tmp_path, by_hand(bag_info=info.encode())))) == 1


def test_early_bags_have_their_payload_oxum_in_package_info(tmp_path: Path) -> None:
    unpacked = unpacked_container(tmp_path, by_hand("0.95", package_info=b"Payload-Oxum: 99.1\n"))

    assert "'package-info.txt': Payload-Oxum is '99.1', not 5.1" in refusal(lambda: check_bags(unpacked))


def test_comments_in_a_manifest_are_no_entries(tmp_path: Path) -> None:
    files = by_hand()
    files["manifest-sha256.txt"] = b"# sha256sum\n" + files["manifest-sha256.txt"]

    assert len(check_bags(unpacked_container(tmp_path, files))) == 1


def test_a_backslash_in_a_manifest_is_named(tmp_path: Path) -> None:
    files = by_hand()
    files["manifest-sha256.txt"] = files["manifest-sha256.txt"].replace(b"/", b"\\")

    said = refusal(lambda: check_bags(unpacked_container(tmp_path, files)))

    assert "line 1: 'data\\a.txt' is outside data/; folders are separated by '/'" in said


@pytest.mark.parametrize("name", ["data/100%25.txt", "data/a%0Ab"])
def test_a_name_that_a_program_did_not_escape_is_found(name: str, tmp_path: Path) -> None:
    files = by_hand() | {name: b"alpha"}
    files["manifest-sha256.txt"] += f"{hashlib.sha256(b'alpha').hexdigest()}  {name}\n".encode()

    assert len(check_bags(unpacked_container(tmp_path, files))) == 1


def test_a_valid_bag_is_told_with_its_version_and_algorithms(tmp_path: Path) -> None:
    assert check_bags(arrived(a_bag(tmp_path))) == (
        "the bag (BagIt 0.97) is valid: 3 payload files, md5, sha512",
    )


def test_every_bag_in_a_container_is_checked(tmp_path: Path) -> None:
    a_bag(tmp_path / "one")
    a_bag(tmp_path / "two")

    assert [said.partition(" (")[0] for said in check_bags(arrived(tmp_path))] == [
        "the bag in 'one/'",
        "the bag in 'two/'",
    ]


def append(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "none": lambda bag: None,
    "a payload byte": lambda bag: append(bag / "data" / "a.txt", b"!"),
    "a payload file missing": lambda bag: (bag / "data" / "a.txt").unlink(),
    "a payload file too many": lambda bag: (bag / "data" / "new.txt").touch(),
    "a tag byte": lambda bag: append(bag / "bag-info.txt", b"Note: x\n"),
    "a tag file missing": lambda bag: (bag / "bag-info.txt").unlink(),
    "a manifest's byte": lambda bag: append(bag / "manifest-md5.txt", b"\n"),
    "no tag manifests": lambda bag: remove(bag.glob("tagmanifest-*")),
    "no declaration of encoding": lambda bag: (bag / "bagit.txt").write_text("BagIt-Version: 0.97\n"),
    "a further tag file": lambda bag: (bag / "notes.txt").touch(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_independent_validator_judges_the_same(tmp_path: Path, damage: str) -> None:
    bag = a_bag(tmp_path / "bag")
    DAMAGES[damage](bag)

    assert is_valid(bag) == is_valid_for_the_library(bag)
    assert is_valid(bag) == (damage in ("none", "no tag manifests", "a further tag file"))


@pytest.mark.parametrize("version", ["0.97", "1.0"])
def test_what_a_computer_added_to_a_bag_does_not_count(tmp_path: Path, version: str) -> None:
    """... as a look into its folder on a Mac does: neither its manifests nor its Payload-Oxum have it."""
    files = by_hand(version, bag_info=b"Payload-Oxum: 5.1\n")

    check_bags(unpacked_container(tmp_path, {**files, "data/.DS_Store": b"of the folder"}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data__a": b"omega"}, "'manifest-sha256.txt' line 1: 'data/a.txt': the sha256 digest is"),
        ({"data__a": None}, "'manifest-sha256.txt' line 1: 'data/a.txt' is not among the files"),
        ({"data__b": b""}, "'data/b.txt' is not in 'manifest-sha256.txt'"),
        ({"manifest_sha256": None}, "it has no manifest-ALGORITHM.txt"),
        ({"manifest_sha256": None, "manifest_blake9": b""}, "manifest-ALGORITHM.txt of a known algorithm"),
        ({"manifest_sha256": b"alpha"}, "'manifest-sha256.txt' line 1 is not a digest and a path"),
        ({"manifest_sha256": b"12  data/a.txt"}, "line 1: '12' is not a value of sha256"),
        ({"manifest_sha256": b"12  data/a.txt\n12  data/a.txt"}, "line 2: 'data/a.txt' is listed twice"),
        ({"manifest_sha256": b"12  ../a.txt"}, "line 1: '../a.txt' is outside data/"),
        ({"tagmanifest_md5": b"12  data/a.txt"}, "line 1: 'data/a.txt' is in data/"),
        ({"bag_info": b"Payload-Oxum: 6.1\n"}, "'bag-info.txt': Payload-Oxum is '6.1', not 5.1"),
        ({"bag_info": b"Payload-Oxum: five\n"}, "Payload-Oxum is 'five', not 5.1"),
        ({"bag_info": b"Note: \xff\n"}, "'bag-info.txt' is not text in utf-8"),
        ({"bagit": b"BagIt-Version: 7\n"}, "bag file 'bagit.txt' has no line such as 'BagIt-Version: 1.0'"),
        ({"bagit": b"BagIt-Version: 1.0\nTag-File-Character-Encoding: rot13"}, "no line 'Tag-File-Character"),
    ],
)
def test_what_is_wrong_with_a_bag_is_told_with_the_file(
    tmp_path: Path, changes: dict[str, bytes | None], says: str
) -> None:
    told = refusal(lambda: check_bags(unpacked_container(tmp_path, by_hand(**changes))))

    assert says in told


def test_before_version_1_one_manifest_has_to_list_a_payload_file(tmp_path: Path) -> None:
    changes: dict[str, bytes | None] = {
        "data__b": b"beta",
        "manifest_md5": f"{hashlib.md5(b'beta').hexdigest()} *data/b.txt\n".encode(),
    }

    told = refusal(
        lambda: check_bags(unpacked_container(tmp_path / "none", by_hand("0.97", data__b=b"beta")))
    )

    assert "'data/b.txt' is in no manifest of the bag" in told
    assert check_bags(unpacked_container(tmp_path / "old", by_hand("0.97", **changes)))
    refusal(lambda: check_bags(unpacked_container(tmp_path / "new", by_hand("1.0", **changes))))


@pytest.mark.parametrize(("version", "written"), [("1.0", "data/50%25.txt"), ("0.97", "data/50%.txt")])
def test_a_percent_sign_is_escaped_since_version_1(tmp_path: Path, version: str, written: str) -> None:
    digest = hashlib.sha256(b"alpha").hexdigest()
    files = by_hand(version, manifest_sha256=f"{digest}  {written}\n".encode())
    files["data/50%.txt"] = files.pop("data/a.txt")

    assert check_bags(unpacked_container(tmp_path, files))


def test_the_longest_digest_that_a_bag_declares_of_a_file_is_kept_with_it(tmp_path: Path) -> None:
    sha512 = hashlib.sha512(b"alpha").hexdigest()
    arrived = unpacked_container(tmp_path, by_hand(manifest_sha512=f"{sha512}  data/a.txt\n".encode()))
    check_bags(arrived)

    (confirmed,) = arrived.confirmed_digests()

    assert confirmed.path == "data/a.txt"
    assert str(confirmed.digest) == f"sha512:{sha512}"
    assert confirmed.declared_by == "'manifest-sha256.txt' line 1 and 'manifest-sha512.txt' line 1"


def listed(version: str, names: Mapping[str, str]) -> dict[str, bytes]:
    """A bag of files that contain "alpha"; name below data/ -> name as its manifest writes it."""
    digest = hashlib.sha256(b"alpha").hexdigest()
    lines = "".join(f"{digest}  data/{written}\n" for written in names.values())
    files = by_hand(version, data__a=None, manifest_sha256=lines.encode())
    return {**files, **{f"data/{name}": b"alpha" for name in names}}


def escaped(name: str) -> str:
    return name.replace("%", "%25").replace("\n", "%0A").replace("\r", "%0D")


@pytest.mark.parametrize(
    "name", ["Final report ", " a", "a  ", " ", "a\u00a0", "a\u3000", "*a", "a *b", "a\tb"]
)
@pytest.mark.parametrize("version", ["0.97", "1.0"])
def test_a_name_of_a_bag_may_begin_and_end_with_blanks(tmp_path: Path, version: str, name: str) -> None:
    assert check_bags(unpacked_container(tmp_path, listed(version, {name: name})))


def test_names_that_differ_in_a_blank_at_the_end_are_two_names(tmp_path: Path) -> None:
    files = listed("1.0", {"a": "a", "a ": "a "})
    assert check_bags(unpacked_container(tmp_path / "both", files))

    files.pop("data/a ")
    told = refusal(lambda: check_bags(unpacked_container(tmp_path / "one", files)))
    assert "line 2: 'data/a ' is not among the files" in told


def test_blanks_that_pad_the_lines_of_a_manifest_are_no_part_of_the_names(tmp_path: Path) -> None:
    assert check_bags(unpacked_container(tmp_path, listed("1.0", {"a.txt": "a.txt  "})))


def test_a_star_is_a_part_of_a_name_if_there_is_such_a_file(tmp_path: Path) -> None:
    note, star = hashlib.md5(b"note").hexdigest(), hashlib.md5(b"star").hexdigest()
    tags = {"notes": b"note", "*notes": b"star"}
    tagmanifest = f"{note} notes\n{star} *notes\n".encode()

    assert check_bags(unpacked_container(tmp_path, by_hand(tagmanifest_md5=tagmanifest) | tags))


@pytest.mark.parametrize(
    "name", ["bagit.txt", "data/bagit.txt", "fetch.txt", "manifest-md5.txt", "bag-info.txt"]
)
def test_payload_is_payload_whatever_its_name(tmp_path: Path, name: str) -> None:
    files = listed("1.0", {name: name})
    files[f"data/{name}"] = files["bagit.txt"]
    digest = hashlib.sha256(files["bagit.txt"]).hexdigest()
    files["manifest-sha256.txt"] = f"{digest}  data/{name}\n".encode()

    (said,) = check_bags(unpacked_container(tmp_path, files))

    assert said == "the bag (BagIt 1.0) is valid: 1 payload files, sha256"


def test_what_is_in_a_bag_is_no_bag_of_its_own(tmp_path: Path) -> None:
    files = by_hand() | {"earlier/bagit.txt": by_hand()["bagit.txt"]}

    assert len(check_bags(unpacked_container(tmp_path, files))) == 1


@pytest.mark.parametrize("written", ["%0A", "%0D", "%0a", "%25"])
def test_before_version_1_nothing_in_a_name_is_escaped(tmp_path: Path, written: str) -> None:
    assert check_bags(unpacked_container(tmp_path, listed("0.97", {f"a{written}b": f"a{written}b"})))


@pytest.mark.parametrize("name", ["a%0Ab", "a%25b", "a%20b", "%", "%2", "a%250Ab"])
def test_since_version_1_three_characters_are_escaped_and_no_others(tmp_path: Path, name: str) -> None:
    assert check_bags(unpacked_container(tmp_path, listed("1.0", {name: escaped(name)})))


_CHECKSUMS = {"crc32": zlib.crc32, "adler32": zlib.adler32}


def digest_of(algorithm: str, data: bytes) -> str:
    if algorithm in _CHECKSUMS:
        return f"{_CHECKSUMS[algorithm](data):08x}"
    return hashlib.new(algorithm, data).hexdigest()


@pytest.mark.parametrize("prefix", ["manifest", "tagmanifest"])
@pytest.mark.parametrize("algorithm", HEX_LENGTH)
def test_every_algorithm_that_is_known_is_compared(tmp_path: Path, algorithm: str, prefix: str) -> None:
    path = "data/a.txt" if prefix == "manifest" else "bagit.txt"
    right = by_hand()
    for spelling in {algorithm, algorithm.upper(), algorithm.replace("_", "-"), algorithm.replace("_", "")}:
        name = f"{prefix}-{spelling}.txt"
        good = f"{digest_of(algorithm, right[path])}  {path}\n".encode()
        bad = f"{digest_of(algorithm, b'other')}  {path}\n".encode()

        assert check_bags(unpacked_container(tmp_path / f"{spelling}-good", right | {name: good}))
        told = refusal(
            lambda name=name, bad=bad: check_bags(  # type: ignore[misc]
                unpacked_container(tmp_path / "bad" / name, right | {name: bad})
            )
        )
        assert f"the {algorithm} digest is" in told


@pytest.mark.parametrize("algorithm", ["blake9", "shake_128", "md5-sha1", "sha 256"])
@pytest.mark.parametrize("prefix", ["manifest", "tagmanifest"])
def test_a_manifest_of_an_unknown_algorithm_is_named_as_not_checked(
    tmp_path: Path, prefix: str, algorithm: str
) -> None:
    path = "data/a.txt" if prefix == "manifest" else "bagit.txt"
    bag = unpacked_container(tmp_path, by_hand() | {f"{prefix}-{algorithm}.txt": f"00  {path}\n".encode()})
    not_checked = f"'{prefix}-{algorithm}.txt' not checked, because the algorithm is not known"

    assert check_bags(bag) == (f"the bag (BagIt 1.0) is valid: 1 payload files, sha256; {not_checked}",)
    assert bag.remarks == [f"the bag: {not_checked}"]


def test_only_algorithms_by_which_payload_was_compared_are_told(tmp_path: Path) -> None:
    md5 = hashlib.md5(b"alpha").hexdigest()
    files = by_hand("0.97", data__b=b"alpha", manifest_md5=f"{md5}  data/b.txt\n".encode())
    sha512 = hashlib.sha512(files["bagit.txt"]).hexdigest()
    files["tagmanifest-sha512.txt"] = f"{sha512}  bagit.txt\n".encode()

    (said,) = check_bags(unpacked_container(tmp_path, files))

    assert said == "the bag (BagIt 0.97) is valid: 2 payload files, md5 of 1, sha256 of 1"


COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "\u00dcbersicht.txt") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(("name", "written"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
def test_a_bag_whose_lists_compose_letters_otherwise_is_accepted_with_a_remark(
    tmp_path: Path, name: str, written: str
) -> None:
    bag = unpacked_container(tmp_path, listed("1.0", {name: written}))

    assert check_bags(bag)

    assert list(bag.confirmed) == [f"data/{name}"]
    (remark,) = bag.remarks
    assert "differs only in how a letter is composed (Unicode NFC and NFD)" in remark


_NAMES = st.lists(
    st.one_of(
        st.sampled_from([*" %*./~\u00a0\u3000\u0085\u00e4", "%0A", "%25", "a", "A"]),
        st.characters(exclude_categories=["Cs"]),
    ),
    min_size=1,
    max_size=12,
).map("".join)


_FILES = st.lists(_NAMES.filter(storable), min_size=1, max_size=6).filter(lambda names: not duplicates(names))


@given(names=_FILES, version=st.sampled_from(["0.97", "1.0"]))
def test_every_name_that_can_be_stored_can_be_the_name_of_a_bag(names: list[str], version: str) -> None:
    files = listed(version, {name: escaped(name) if version == "1.0" else name for name in names})

    with tempfile.TemporaryDirectory() as folder:
        bag = unpacked_container(Path(folder), files)
        assert check_bags(bag)
        assert list(bag.confirmed) == [f"data/{name}" for name in names]


@given(names=_FILES, lost=st.integers(0, 5), damaged=st.booleans())
def test_an_independent_validator_judges_generated_bags_the_same(
    names: list[str], lost: int, damaged: bool
) -> None:
    """Except that the library strips names, decodes escapes of no version 0.97, and skips comments."""
    names = [name for name in names if name == name.strip() and "%0" not in name]
    with tempfile.TemporaryDirectory() as folder:
        unpacked_container(Path(folder), {name: b"alpha" for name in names})
        bagit.make_bag(folder, checksums=["md5", "sha3_256"])
        if lost < len(names):
            file = Path(folder, "data", names[lost])
            file.write_bytes(b"other") if damaged else file.unlink()

        assert is_valid(Path(folder)) == is_valid_for_the_library(Path(folder))
