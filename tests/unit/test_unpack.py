import hashlib
import io
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.packing import FILES, LIMITS, PACKED, Unpack, entry, on_disk, tarred, zipped
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


def test_folders_without_files_leave_nothing(unpacked: Unpack, tmp_path: Path) -> None:
    unpacked(zipped({"empty/": b"", "a": b"1"}))

    assert [path.name for path in (unpacked.target).iterdir()] == ["a"]


def test_a_tar_of_the_folder_it_stood_in_is_unpacked(unpacked: Unpack) -> None:
    files = [entry(".", type=tarfile.DIRTYPE), entry("./a", b"1"), entry("./b/c", b"2")]

    assert [file.path for file in unpacked(tarred(files), "a.tar")] == ["a", "b/c"]


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
