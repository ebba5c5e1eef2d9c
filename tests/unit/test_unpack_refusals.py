import bz2
import gzip
import io
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.containers.unpack import RATIO_FLOOR, Limits
from tests.support.packing import Unpack, entry, tarred, zipped


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpack:
    return Unpack(tmp_path)


UNSAFE = ["../up", "/absolute", "a/../../up", "a//b", "a/./b", "back\\slash", "line\nend"]


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_name_that_is_not_safe_refuses_the_container(
    name: str, pack: Callable[..., bytes], unpacked: Unpack, tmp_path: Path
) -> None:
    assert "rename it" in unpacked.refusal(pack({"good": b"1", name: b"2"}))
    assert {path.name for path in tmp_path.rglob("*")} == {"archive", "target", "good"}


def test_a_folder_outside_refuses_the_container(unpacked: Unpack) -> None:
    unpacked.refusal(zipped({"../": b"", "a": b"1"}))
    unpacked.refusal(tarred([entry("../x", type=tarfile.DIRTYPE)]))


def test_a_zip_name_cut_by_a_nul_is_refused(unpacked: Unpack) -> None:
    data = zipped({"a_b": b"1"}).replace(b"a_b", b"a\0b")

    assert "U+0000" in unpacked.refusal(data)


def test_a_tar_name_cut_by_a_nul_is_refused(unpacked: Unpack) -> None:
    header = bytearray(tarfile.TarInfo("a_b").tobuf(tarfile.USTAR_FORMAT))
    header[:3] = b"a\0b"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    long_name = tarred({"a_b" * 50: b"1"}, form=tarfile.GNU_FORMAT).replace(b"a_b" * 50, b"a\0b" * 50)
    pax = tarred([entry("a", pax_headers={"path": "a\0b"})])

    for data in (bytes(header) + bytes(1024), long_name, pax):
        assert "U+0000" in unpacked.refusal(data, "a.tar")


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("character", ["\u202e", "\u2066", "\u202b", "\u200b", "\ufeff", "\u2028", "\x85"])
def test_a_character_that_nobody_sees_in_a_name_is_refused(
    character: str, pack: Callable[..., bytes], unpacked: Unpack
) -> None:
    said = unpacked.refusal(pack({f"a{character}gpj.exe": b"1"}))

    assert f"character U+{ord(character):04X} in it; rename it" in said


def test_the_rest_of_a_file_of_another_volume_is_refused(unpacked: Unpack) -> None:
    rest = tarred([entry("a", b"1", type=b"M")], form=tarfile.GNU_FORMAT)
    headers = {"GNU.volume.filename": "a", "GNU.volume.offset": "512"}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", pax_headers=headers) as archive:
        archive.addfile(entry("a")[0])

    assert "'a' is continued from another volume" in unpacked.refusal(rest, "a.tar")
    assert "continued from another volume" in unpacked.refusal(data.getvalue(), "a.tar")


def test_a_zip_without_its_other_parts_says_so(unpacked: Unpack) -> None:
    last = bytearray(zipped({"a": b"1"}))
    last[last.rindex(b"PK\5\6") + 4] = 1

    for data, name in ((bytes(last), "a.zip"), (b"PK\7\x08" + zipped({"a": b"1"})[:40], "a.z01")):
        assert "the other parts are missing" in unpacked.refusal(data, name)


@pytest.mark.parametrize("name", ["a.z01", "a.z100", "A.Z1000", "a.zip.002", "a.zip.1000"])
def test_a_part_of_a_zip_says_so_wherever_it_was_cut(name: str, unpacked: Unpack) -> None:
    whole = zipped({"a": bytes(range(256)) * 40}, method=zipfile.ZIP_STORED)

    for part in (whole[:900], whole[900:1800], whole[1800:]):
        assert "the other parts are missing" in unpacked.refusal(part, name)


@pytest.mark.parametrize("name", ["a.z100", "a.zip.001"])
def test_a_whole_zip_may_be_named_as_a_part(name: str, unpacked: Unpack) -> None:
    assert [file.path for file in unpacked(zipped({"a": b"1"}), name)] == ["a"]


def test_a_folder_that_is_also_a_file_refuses_the_container(unpacked: Unpack) -> None:
    assert "is a folder and also a file" in unpacked.refusal(zipped({"a/": b"", "a": b"1"}))


@pytest.mark.parametrize(("pack", "name"), [(zipped, "a.zip"), (tarred, "a.tar")])
def test_a_folder_with_content_is_refused(
    pack: Callable[[dict[str, bytes]], bytes], name: str, unpacked: Unpack
) -> None:
    assert "is a folder with content" in unpacked.refusal(pack({"a/": b"x", "b": b"1"}), name)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tarfile.SYMTYPE, "symbolic link"),
        (tarfile.LNKTYPE, "hard link"),
        (tarfile.CHRTYPE, "neither a file nor a folder"),
        (tarfile.BLKTYPE, "neither a file nor a folder"),
        (tarfile.FIFOTYPE, "neither a file nor a folder"),
    ],
)
def test_tar_links_and_devices_are_refused(kind: bytes, said: str, unpacked: Unpack) -> None:
    message = unpacked.refusal(tarred([entry("bad", type=kind, linkname="/etc/passwd")]), "a.tar")

    assert message.startswith("container 'a.tar': 'bad' is ")
    assert said in message


@pytest.mark.parametrize(
    ("mode", "said"), [(stat.S_IFLNK, "symbolic link"), (stat.S_IFIFO, "neither a file nor a folder")]
)
def test_zip_links_and_pipes_are_refused(mode: int, said: str, unpacked: Unpack) -> None:
    info = zipfile.ZipInfo("bad")
    info.external_attr = (mode | 0o777) << 16
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(info, "/etc/passwd")

    assert said in unpacked.refusal(data.getvalue())


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", "a"], "given twice"),
        (["a/b", "A/B"], "upper and lower case"),
        (["a", "a/b"], "is a file and also the folder"),
        (["a/b", "a"], "is a file and also the folder"),
        (["caf\u00e9", "cafe\u0301"], "composed"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_clash_refuse_the_container(names: list[str], said: str, unpacked: Unpack) -> None:
    message = unpacked.refusal(zipped([(name, b"1") for name in names]))

    assert said in message
    assert message.endswith("; rename it and pack again")


def test_names_that_clash_in_a_tar_refuse_it(unpacked: Unpack) -> None:
    assert "given twice" in unpacked.refusal(tarred([entry("a", b"1"), entry("a", b"2")]), "a.tar")


def test_names_may_differ_in_case_where_that_is_allowed(unpacked: Unpack) -> None:
    limits = Limits(entries=10, bytes=1000, ratio=10, case_fold=False)

    assert len(unpacked(zipped({"xt_MARK.h": b"1", "xt_mark.h": b"2"}), limits=limits)) == 2


@pytest.mark.parametrize(
    "data",
    [
        zipped({str(n): b"" for n in range(4)}),
        zipped({f"{n}/": b"" for n in range(4)}),
        tarred({f"{n}/a": b"" for n in range(2)}),
    ],
    ids=["files", "empty folders", "folders of files"],
)
def test_too_many_files_and_folders_refuse_the_container(data: bytes, unpacked: Unpack) -> None:
    assert "more than 3" in unpacked.refusal(data, limits=Limits(entries=3, bytes=1 << 20, ratio=200))


def test_a_zip_directory_of_too_many_entries_is_refused_before_it_is_read(unpacked: Unpack) -> None:
    limits = Limits(entries=1000, bytes=1 << 20, ratio=200)
    names = {f"{'long' * 60}{n}": b"" for n in range(4000)}

    assert "more than 1000 entries" in unpacked.refusal(zipped(names), limits=limits)


@pytest.mark.parametrize("kind", ["zip", "tar", "gz", "bz2"])
def test_more_bytes_than_allowed_refuse_the_container(kind: str, unpacked: Unpack) -> None:
    files = {"a": b"x" * 600, "b": b"x" * 600}
    data = zipped(files) if kind == "zip" else tarred(files, "" if kind == "tar" else kind)

    said = unpacked.refusal(data, limits=Limits(entries=10, bytes=1000, ratio=200))

    assert "unpacks to more than its limit allows, at 'b': divide it, or ask the operator" in said


@pytest.mark.parametrize("kind", ["zip", "gz", "bz2"])
def test_a_bomb_is_stopped_by_its_ratio(kind: str, unpacked: Unpack, tmp_path: Path) -> None:
    files = {"zeros": bytes(RATIO_FLOOR + 1)}
    data = zipped(files) if kind == "zip" else tarred(files, kind)
    said = unpacked.refusal(data, limits=Limits(entries=10, bytes=1 << 40, ratio=2))

    assert "at 'zeros'" in said
    assert (unpacked.target / "zeros").stat().st_size <= RATIO_FLOOR


def test_entries_of_a_zip_that_share_their_bytes_are_counted_each(unpacked: Unpack) -> None:
    data = zipped({"f00": bytes(1 << 20)})
    directory, end = data.index(b"PK\1\2"), data.rindex(b"PK\5\6")
    entries = b"".join(data[directory:end].replace(b"f00", b"f%02d" % n) for n in range(99))
    last = struct.pack("<4s4xHHLLH", b"PK\5\6", 99, 99, len(entries), directory, 0)
    bomb = data[:directory] + entries + last

    said = unpacked.refusal(bomb, limits=Limits(entries=1000, bytes=10 << 20, ratio=200))

    assert "unpacks to more than its limit allows, at 'f10'" in said


def test_zeros_after_the_end_of_a_tar_are_limited_too(unpacked: Unpack) -> None:
    data = gzip.compress(tarred({"a": b"1"}) + bytes(RATIO_FLOOR + (4 << 20)), 1)

    assert "more than" in unpacked.refusal(data, limits=Limits(entries=10, bytes=1 << 40, ratio=2))


def test_an_encrypted_zip_is_refused(unpacked: Unpack) -> None:
    data = bytearray(zipped({"a": b"1"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    data[6] |= 1

    assert "encrypted" in unpacked.refusal(bytes(data))


def test_an_unusual_zip_method_is_refused(unpacked: Unpack) -> None:
    assert "zip method 14" in unpacked.refusal(zipped({"a": b"1"}, method=zipfile.ZIP_LZMA))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(b"one file" * 1000), "compressed file without a tar in it"),
        (bz2.compress(b"one file" * 1000), "compressed file without a tar in it"),
        (gzip.compress(b""), "compressed file without a tar in it"),
        (b"Rar!\x1a\x07\x01\x00" + bytes(100), "a RAR archive"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(100), "a 7z archive"),
        (b"plain text", "not a known archive"),
        (
            b"",
            "not a known archive: pack it as .zip .tar .tar.gz .tgz .tar.bz2, or submit it as type file",
        ),
        (zipped({}), "no files in it"),
        (zipped({"folder/": b""}), "no files in it"),
    ],
    ids=["gzip", "bzip2", "an empty gzip", "rar", "7z", "text", "nothing", "an empty zip", "folders alone"],
)
def test_what_is_no_container_is_refused_with_what_to_do(data: bytes, said: str, unpacked: Unpack) -> None:
    assert said in unpacked.refusal(data)


def test_a_compressed_file_that_is_named_as_a_tar_is_damaged(unpacked: Unpack) -> None:
    said = unpacked.refusal(gzip.compress(b"no tar" * 1000), "a.tar.gz")

    assert (
        "is damaged, truncated or of an unusual kind (the compressed file is not a tar): pack it again"
        in said
    )
