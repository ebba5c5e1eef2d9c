import hashlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import bagit
import pytest

from pipeline.containers.bag import check_bags
from pipeline.outcome import StepFailed
from tests.support.unpacked import arrived, refusal, unpacked_container

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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data__a": b"omega"}, "'manifest-sha256.txt' line 1: 'data/a.txt': the sha256 digest is"),
        ({"data__a": None}, "'manifest-sha256.txt' line 1: 'data/a.txt' is not in the container"),
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
