import hashlib
import io
import shutil
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.file_system import empty_folders
from tests.support.packing import (
    FILES,
    LIMITS,
    PACKED,
    Unpack,
    blocks,
    entry,
    on_disk,
    tarred,
    unicode_path,
    with_extra,
    zipped,
)
from tests.support.requirements import unavailable


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpack:
    return Unpack(tmp_path)


@pytest.mark.parametrize("name", PACKED)
def test_everything_in_a_container_arrives(name: str, unpacked: Unpack, tmp_path: Path) -> None:
    files = unpacked(PACKED[name], name)

    assert on_disk(unpacked.target) == FILES
    assert {file.path: (file.size, file.sha512) for file in files} == {
        path: (len(content), hashlib.sha512(content).hexdigest()) for path, content in FILES.items()
    }


def test_the_content_tells_the_format_not_the_name(unpacked: Unpack) -> None:
    assert len(unpacked(PACKED["a.tar.gz"], "misnamed.zip")) == len(FILES)


def test_a_zip_with_a_program_in_front_is_unpacked(unpacked: Unpack) -> None:
    assert len(unpacked(b"#!/bin/sh\nexit\n" + PACKED["a.zip"], "self-extracting.zip")) == len(FILES)


def test_a_single_top_folder_is_kept(unpacked: Unpack) -> None:
    assert [file.path for file in unpacked(zipped({"top/a": b"1", "top/b": b"2"}))] == ["top/a", "top/b"]


def test_what_a_system_adds_is_kept_too(unpacked: Unpack) -> None:
    names = ["__MACOSX/._a", ".DS_Store", "Thumbs.db"]

    assert [file.path for file in unpacked(zipped(dict.fromkeys(names, b"x")))] == names


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_folders_without_files_stay_to_be_named(pack: Callable[..., bytes], unpacked: Unpack) -> None:
    files = [("empty/", b""), ("full/", b""), ("full/a", b"1"), ("b/c/", b"")]
    data = [entry(n.rstrip("/"), c, type=b"5" if n.endswith("/") else b"0") for n, c in files]
    unpacked(pack(files if pack is zipped else data))

    assert empty_folders(unpacked.target) == ("b/c", "empty")


def test_times_in_a_gnu_header_are_no_prefix_of_the_name(unpacked: Unpack) -> None:
    header = blocks(tarfile.GNU_FORMAT, (345, b"15301531635"))

    assert [file.path for file in unpacked(header + bytes(1024), "a.tar")] == ["a.txt"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ([(345, b"folder")], "folder/a.txt"),
        ([(345, b"f" * 130 + b"\0" + b"00000000001 " * 2), (508, b"tar\0")], "f" * 130 + "/a.txt"),
        ([(345, b"f" * 155)], "f" * 155 + "/a.txt"),
        ([(345, b"folder"), (257, bytes(8))], "a.txt"),
        ([(345, b"folder/")], "folder/a.txt"),
    ],
    ids=["ustar", "star", "full", "v7", "slash"],
)
def test_a_prefix_counts_in_posix_headers_alone(
    changes: list[tuple[int, bytes]], name: str, unpacked: Unpack
) -> None:
    data = blocks(tarfile.USTAR_FORMAT, *changes) + bytes(1024)

    assert [file.path for file in unpacked(data, "a.tar")] == [name]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT])
def test_an_empty_tar_entry_whose_name_ends_in_a_slash_is_a_folder(form: int, unpacked: Unpack) -> None:
    name = "\u4eac/" if form == tarfile.PAX_FORMAT else "docs/"
    unpacked(tarred([entry(name), entry("a", b"1")], form=form), "a.tar")

    assert empty_folders(unpacked.target) == (name.rstrip("/"),)


def test_volume_labels_and_lists_of_folders_in_a_backup_are_no_files(unpacked: Unpack) -> None:
    files = [
        entry("Backup of May", type=b"V"),
        entry("docs/a.txt", b"user::rw-\0", type=b"A"),
        entry("docs/", b"Ya.txt\0\0", type=b"D"),
        entry("docs/a.txt", b"1"),
    ]

    assert [file.path for file in unpacked(tarred(files, form=tarfile.GNU_FORMAT), "a.tar")] == ["docs/a.txt"]


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        (unicode_path("\u4eac\u90fd.txt".encode()), "\u4eac\u90fd.txt"),
        (b"\1\2\1\0x" + unicode_path("\u4eac.txt".encode()), "\u4eac.txt"),
        (unicode_path(b"stale.txt", of=b"other"), "__.txt"),
        (unicode_path(b"new.txt", version=2), "__.txt"),
        (unicode_path(b"\xff\xfe"), "__.txt"),
        (unicode_path(b""), "__.txt"),
        (b"\x75\x70\2\0ab", "__.txt"),
        (b"camera", "__.txt"),
        (b"\1\2\xff\xff", "__.txt"),
    ],
)
def test_an_extra_field_names_a_zip_entry_if_it_is_whole_and_of_this_name(
    extra: bytes, name: str, unpacked: Unpack
) -> None:
    (file,) = unpacked(with_extra(b"1", extra))

    assert (file.path, file.name_encoding) == (name, "")


@pytest.mark.parametrize(
    ("system", "attributes"), [(0, 0x10), (10, 0x10), (3, stat.S_IFDIR << 16), (19, stat.S_IFDIR << 16)]
)
def test_a_zip_folder_may_be_marked_by_its_attributes_alone(
    system: int, attributes: int, unpacked: Unpack
) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        info = zipfile.ZipInfo("plates")
        info.create_system, info.external_attr = system, attributes
        archive.writestr(info, b"")
        archive.writestr("plates/1.txt", b"1")

    assert [file.path for file in unpacked(data.getvalue())] == ["plates/1.txt"]


def _made_by(system: int, name: str, attributes: int = 0) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.create_system, info.external_attr = system, attributes
        archive.writestr(info, b"1")
    return data.getvalue()


@pytest.mark.parametrize("system", [0, 10, 11, 14])
def test_backslashes_of_a_zip_made_by_windows_are_between_folders(system: int, unpacked: Unpack) -> None:
    assert [file.path for file in unpacked(_made_by(system, "a\\b.txt"))] == ["a/b.txt"]


@pytest.mark.parametrize(("system", "name"), [(3, "a\\b"), (19, "a\\b"), (0, "a/b\\c"), (0, "..\\a")])
def test_other_backslashes_in_a_zip_are_refused(system: int, name: str, unpacked: Unpack) -> None:
    assert "file name" in unpacked.refusal(_made_by(system, name))


def test_a_backslash_that_may_be_half_of_a_letter_is_no_end_of_a_folder(unpacked: Unpack) -> None:
    data = _made_by(0, "__.txt").replace(b"__", "\u8868".encode("cp932"))

    assert "has a backslash" in unpacked.refusal(data)


@pytest.mark.parametrize("mode", [stat.S_IFSOCK, stat.S_IFIFO, 0x5000])
def test_only_systems_of_unix_write_the_kind_of_a_zip_entry(mode: int, unpacked: Unpack) -> None:
    assert [file.path for file in unpacked(_made_by(0, "a.txt", mode << 16))] == ["a.txt"]


def test_a_zip_that_could_have_been_divided_and_was_not_is_unpacked(unpacked: Unpack) -> None:
    data = zipped({"a.txt": b"1"})

    assert [file.path for file in unpacked(b"PK00" + data, "4711")] == ["a.txt"]


@pytest.mark.parametrize("local", [b"a\\b.txt", b"\xff/b.txt"])
def test_the_directory_of_a_zip_decides_on_names(local: bytes, unpacked: Unpack) -> None:
    data = zipped({"a/b.txt": b"1"}).replace(b"a/b.txt", local, 1)

    assert [file.path for file in unpacked(data)] == ["a/b.txt"]


def test_a_tar_of_the_folder_it_stood_in_is_unpacked(unpacked: Unpack) -> None:
    files = [entry(".", type=tarfile.DIRTYPE), entry("./a", b"1"), entry("./b/c", b"2")]

    assert [file.path for file in unpacked(tarred(files), "a.tar")] == ["a", "b/c"]


@pytest.mark.parametrize("here", ["./", ".//", "././"])
@pytest.mark.parametrize("name", ["a.zip", "a.tar"])
def test_the_folder_in_which_a_container_was_packed_is_no_part_of_a_name(
    here: str, name: str, unpacked: Unpack
) -> None:
    data = (zipped if name == "a.zip" else tarred)({f"{here}b/c": b"1"})

    assert [file.path for file in unpacked(data, name)] == ["b/c"]


def test_long_tar_names_are_read_whole(unpacked: Unpack) -> None:
    name = "/".join(["a-rather-long-folder-name"] * 20)

    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        assert unpacked(tarred({f"{form}/{name}": b"1"}, form=form), "a.tar")[0].path == f"{form}/{name}"


def test_a_sparse_tar_entry_gets_its_zeros(unpacked: Unpack, tmp_path: Path) -> None:
    """The old GNU form: data at 1 MiB, after a hole."""
    header = bytearray(tarfile.TarInfo("sparse").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"%011o\0" % 512
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"%011o\0" % (1 << 20) + b"%011o\0" % 512
    header[483:495] = b"%011o\0" % ((1 << 20) + 512)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    unpacked(bytes(header) + b"x" * 512 + bytes(1024), "a.tar")

    assert (unpacked.target / "sparse").read_bytes() == bytes(1 << 20) + b"x" * 512


def test_what_tar_programs_add_in_extended_headers_is_read_over(unpacked: Unpack, tmp_path: Path) -> None:
    """Attributes, access lists, times, comments of git archive; names and sizes are taken from them."""
    name = "/".join(["f\u00f6lder-of-a-long-name"] * 12)
    headers = {
        "SCHILY.xattr.user.origin": "https://example.org/" + "7" * 5000,
        "LIBARCHIVE.xattr.user.bytes": "AAEC/w",
        "SCHILY.acl.access": "user::rw-,group::r--,other::r--",
        "mtime": "1700000000.123456789",
        "comment": "0" * 40,
        "path": name,
        "size": "3",
    }
    data = tarred([entry("a", b"one", pax_headers=headers), entry("b", b"two")])

    assert [file.path for file in unpacked(data, "a.tar")] == [name, "b"]
    assert on_disk(unpacked.target) == {name: b"one", "b": b"two"}


GNU_SPARSE = (
    "--format=gnu",
    *(f"--format=pax --sparse-version={version}" for version in ("0.0", "0.1", "1.0")),
)


@pytest.mark.parametrize("options", GNU_SPARSE)
def test_sparse_files_of_gnu_tar_are_read_in_all_its_forms(
    options: str, unpacked: Unpack, tmp_path: Path
) -> None:
    gnu_tar = shutil.which("gtar") or shutil.which("tar") or ""
    if "GNU" not in subprocess.run([gnu_tar, "--version"], capture_output=True, text=True, check=True).stdout:
        unavailable("GNU tar is missing")
    folder, archive = tmp_path / "packed", tmp_path / "sparse.tar"
    folder.mkdir()
    with (folder / "holes").open("wb") as file:
        for number in range(40):
            file.seek(number << 17)
            file.write(b"%d" % number * 4096)
    packing = [
        gnu_tar,
        "--create",
        "--sparse",
        *options.split(),
        f"--file={archive}",
        "-C",
        str(folder),
        "holes",
    ]
    subprocess.run(packing, check=True)

    unpacked(archive.read_bytes(), "a.tar")

    assert (unpacked.target / "holes").read_bytes() == (folder / "holes").read_bytes()


def raw_named(raw: bytes) -> bytes:
    """A zip whose one name is these bytes, with no word on their encoding."""
    return zipped({"x" * len(raw): b"1"}).replace(b"x" * len(raw), raw)


@pytest.mark.parametrize(
    ("raw", "name", "encoding", "kept"),
    [
        ("caf\u00e9".encode(), "caf\u00e9", "utf-8", "caf%C3%A9"),
        ("caf\u00e9".encode("cp437"), "caf\u00e9", "cp437", "caf%82"),
        ("caf\u00e9".encode("cp1252"), "caf\u0398", "cp437", "caf%E9"),
        (b"plain", "plain", "", ""),
    ],
)
def test_a_zip_name_without_an_encoding_is_read_and_kept_with_its_bytes(
    raw: bytes, name: str, encoding: str, kept: str, unpacked: Unpack
) -> None:
    (file,) = unpacked(raw_named(raw))

    assert (file.path, file.name_encoding, file.raw_name) == (name, encoding, kept)


def test_the_profile_says_the_encoding_of_zip_names(unpacked: Unpack) -> None:
    limits = replace(LIMITS, name_encoding="cp1252")

    (file,) = unpacked(raw_named("caf\u00e9".encode("cp1252")), limits=limits)

    assert (file.path, file.name_encoding) == ("caf\u00e9", "cp1252")


def test_a_zip_name_that_is_not_in_the_encoding_of_the_profile_is_refused(unpacked: Unpack) -> None:
    said = unpacked.refusal(raw_named(b"caf\x81"), limits=replace(LIMITS, name_encoding="cp1252"))

    assert "is not cp1252, which the profile's zip_name_encoding says: pack it with names in UTF-8" in said


def test_a_dot_folder_in_a_zip_is_the_object_itself(unpacked: Unpack) -> None:
    files = unpacked(zipped([("./", b""), ("./a.txt", b"1"), ("./folder/b.txt", b"2")]))

    assert [file.path for file in files] == ["a.txt", "folder/b.txt"]


def test_a_zip_name_that_says_utf8_is_read_so(unpacked: Unpack) -> None:
    (file,) = unpacked(zipped({"caf\u00e9": b"1"}))

    assert (file.path, file.name_encoding) == ("caf\u00e9", "")


def test_a_tar_name_that_is_not_utf8_is_read_as_iso_8859_1(unpacked: Unpack) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT, encoding="iso-8859-1") as archive:
        archive.addfile(entry("caf\u00e9")[0])

    (file,) = unpacked(data.getvalue(), "a.tar")
    assert (file.path, file.name_encoding, file.raw_name) == ("caf\u00e9", "iso-8859-1", "caf%E9")
