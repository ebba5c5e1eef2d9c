import bz2
import errno
import gzip
import hashlib
import io
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.container import RATIO_FLOOR, Limits, UnpackedFile, unpack
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.states import FailureKind

LIMITS = Limits(entries=1000, bytes=1 << 30, ratio=200)
FILES = {
    "a.txt": b"one",
    "folder/b.txt": b"two",
    "folder/deeper/c.bin": bytes(range(256)) * 3000,
    "empty": b"",
}
Unpack = Callable[..., tuple[UnpackedFile, ...]]


def zipped(files: dict[str, bytes] | list[tuple[str, bytes]], **options: int) -> bytes:
    pairs = files.items() if isinstance(files, dict) else files
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", options.get("method", zipfile.ZIP_DEFLATED)) as archive:
        for name, content in pairs:
            archive.writestr(zipfile.ZipInfo(name), content, archive.compression)
    return data.getvalue()


def entry(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def tarred(
    files: dict[str, bytes] | list[tuple[tarfile.TarInfo, bytes]],
    kind: str = "",
    form: int = tarfile.PAX_FORMAT,
) -> bytes:
    pairs = [entry(*pair) for pair in files.items()] if isinstance(files, dict) else files
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=f"w:{kind}", format=form) as archive:
        for info, content in pairs:
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def on_disk(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpack:
    """Unpack these bytes under this name into tmp_path / "target"."""

    def run(data: bytes, name: str = "a.zip", limits: Limits = LIMITS) -> tuple[UnpackedFile, ...]:
        archive = tmp_path / "archive"
        archive.write_bytes(data)
        return unpack(archive, name, tmp_path / "target", limits, lambda: None)

    return run


def refusal(unpacked: Unpack, data: bytes, name: str = "a.zip", limits: Limits = LIMITS) -> str:
    with pytest.raises(StepFailed) as caught:
        unpacked(data, name, limits)
    assert caught.value.kind is FailureKind.CONTENT
    assert name in caught.value.message
    return caught.value.message


PACKED = {
    "a.zip": zipped(FILES),
    "stored.zip": zipped(FILES, method=zipfile.ZIP_STORED),
    "bzip2.zip": zipped(FILES, method=zipfile.ZIP_BZIP2),
    "a.tar": tarred(FILES),
    "gnu.tar": tarred(FILES, form=tarfile.GNU_FORMAT),
    "ustar.tar": tarred(FILES, form=tarfile.USTAR_FORMAT),
    "a.tar.gz": tarred(FILES, "gz"),
    "a.tgz": tarred(FILES, "gz"),
    "a.tar.bz2": tarred(FILES, "bz2"),
}


@pytest.mark.parametrize("name", PACKED)
def test_everything_in_a_container_arrives(name: str, unpacked: Unpack, tmp_path: Path) -> None:
    files = unpacked(PACKED[name], name)

    assert on_disk(tmp_path / "target") == FILES
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

    assert [path.name for path in (tmp_path / "target").iterdir()] == ["a"]


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

    assert (tmp_path / "target" / "sparse").read_bytes() == bytes(1 << 20) + b"x" * 512


UNSAFE = ["../up", "/absolute", "a/../../up", "a//b", "a/./b", "back\\slash", "line\nend"]


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_name_that_is_not_safe_refuses_the_container(
    name: str, pack: Callable[..., bytes], unpacked: Unpack, tmp_path: Path
) -> None:
    assert "rename it" in refusal(unpacked, pack({"good": b"1", name: b"2"}))
    assert {path.name for path in tmp_path.rglob("*")} == {"archive", "target", "good"}


def test_a_folder_outside_refuses_the_container(unpacked: Unpack) -> None:
    refusal(unpacked, zipped({"../": b"", "a": b"1"}))
    refusal(unpacked, tarred([entry("../x", type=tarfile.DIRTYPE)]))


def test_a_zip_name_cut_by_a_nul_is_refused(unpacked: Unpack) -> None:
    data = zipped({"a_b": b"1"}).replace(b"a_b", b"a\0b")

    assert "U+0000" in refusal(unpacked, data)


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
    message = refusal(unpacked, tarred([entry("bad", type=kind, linkname="/etc/passwd")]), "a.tar")

    assert said in message
    assert "'bad'" in message


@pytest.mark.parametrize(
    ("mode", "said"), [(stat.S_IFLNK, "symbolic link"), (stat.S_IFIFO, "neither a file nor a folder")]
)
def test_zip_links_and_pipes_are_refused(mode: int, said: str, unpacked: Unpack) -> None:
    info = zipfile.ZipInfo("bad")
    info.external_attr = (mode | 0o777) << 16
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(info, "/etc/passwd")

    assert said in refusal(unpacked, data.getvalue())


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
    assert said in refusal(unpacked, zipped([(name, b"1") for name in names]))


def test_names_that_clash_in_a_tar_refuse_it(unpacked: Unpack) -> None:
    assert "given twice" in refusal(unpacked, tarred([entry("a", b"1"), entry("a", b"2")]), "a.tar")


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
    assert "more than 3" in refusal(unpacked, data, limits=Limits(entries=3, bytes=1 << 20, ratio=200))


def test_a_zip_directory_of_too_many_entries_is_refused_before_it_is_read(unpacked: Unpack) -> None:
    limits = Limits(entries=1000, bytes=1 << 20, ratio=200)
    names = {f"{'long' * 60}{n}": b"" for n in range(4000)}

    assert "more than 1000 entries" in refusal(unpacked, zipped(names), limits=limits)


@pytest.mark.parametrize("kind", ["zip", "tar", "gz", "bz2"])
def test_more_bytes_than_allowed_refuse_the_container(kind: str, unpacked: Unpack) -> None:
    files = {"a": b"x" * 600, "b": b"x" * 600}
    data = zipped(files) if kind == "zip" else tarred(files, "" if kind == "tar" else kind)

    assert "'b'" in refusal(unpacked, data, limits=Limits(entries=10, bytes=1000, ratio=200))


@pytest.mark.parametrize("kind", ["zip", "gz", "bz2"])
def test_a_bomb_is_stopped_by_its_ratio(kind: str, unpacked: Unpack, tmp_path: Path) -> None:
    files = {"zeros": bytes(RATIO_FLOOR + 1)}
    data = zipped(files) if kind == "zip" else tarred(files, kind)
    refusal(unpacked, data, limits=Limits(entries=10, bytes=1 << 40, ratio=2))

    assert (tmp_path / "target" / "zeros").stat().st_size <= RATIO_FLOOR


def test_zeros_after_the_end_of_a_tar_are_limited_too(unpacked: Unpack) -> None:
    data = gzip.compress(tarred({"a": b"1"}) + bytes(RATIO_FLOOR + (4 << 20)), 1)

    assert "more than" in refusal(unpacked, data, limits=Limits(entries=10, bytes=1 << 40, ratio=2))


def test_a_zip_header_that_lies_about_the_size_is_refused(unpacked: Unpack) -> None:
    data = zipped({"a": b"x" * 1000}).replace(struct.pack("<L", 1000), struct.pack("<L", 10))

    assert "damaged" in refusal(unpacked, data)


def test_a_tar_header_that_claims_much_memory_is_refused(unpacked: Unpack) -> None:
    header = bytearray(entry("././@PaxHeader", type=tarfile.XHDTYPE)[0].tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = b"%011o\0" % (1 << 32)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)

    assert "too many bytes" in refusal(unpacked, bytes(header) + bytes(4096), "a.tar")


def test_an_encrypted_zip_is_refused(unpacked: Unpack) -> None:
    data = bytearray(zipped({"a": b"1"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    data[6] |= 1

    assert "encrypted" in refusal(unpacked, bytes(data))


def test_an_unusual_zip_method_is_refused(unpacked: Unpack) -> None:
    assert "zip method 14" in refusal(unpacked, zipped({"a": b"1"}, method=zipfile.ZIP_LZMA))


@pytest.mark.parametrize("name", PACKED)
def test_a_truncated_container_is_refused_wherever_it_was_cut(name: str, tmp_path: Path) -> None:
    data = PACKED[name]
    end = data.rstrip(b"\0") if name.endswith("tar") else data  # a tar may be padded at its end
    cuts = [*range(1, 40), *range(40, len(end), 1499), len(end) - 1]
    archive = tmp_path / "archive"
    for cut in cuts:
        archive.write_bytes(data[:cut])
        with pytest.raises(StepFailed) as caught:
            unpack(archive, name, tmp_path / str(cut), LIMITS, lambda: None)
        assert caught.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar.bz2"])
@pytest.mark.parametrize("at", [0.3, 0.5, 0.7])
def test_a_flipped_bit_in_the_content_refuses_the_container(name: str, at: float, unpacked: Unpack) -> None:
    data = bytearray(PACKED[name])
    data[int(len(data) * at)] ^= 0x10

    assert "damaged" in refusal(unpacked, bytes(data), name)


def test_a_damaged_tar_header_is_not_taken_for_the_end(unpacked: Unpack) -> None:
    data = bytearray(tarred([entry("a", b"1"), entry("b", b"2")], form=tarfile.USTAR_FORMAT))
    data[1024] ^= 0x10

    assert "no end of archive after 'a'" in refusal(unpacked, bytes(data), "a.tar")


def test_a_second_archive_behind_the_first_is_not_dropped(unpacked: Unpack) -> None:
    assert "something follows" in refusal(unpacked, tarred({"a": b"1"}) + tarred({"b": b"2"}), "a.tar")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(b"one file" * 1000), "compressed file with no tar in it"),
        (bz2.compress(b"one file" * 1000), "compressed file with no tar in it"),
        (gzip.compress(b""), "compressed file with no tar in it"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(100), "a 7z archive"),
        (b"Rar!\x1a\x07\x01\x00" + bytes(100), "a RAR archive"),
        (b"plain text", "no archive we know"),
        (b"", "no archive we know"),
        (zipped({}), "no files in it"),
        (zipped({"folder/": b""}), "no files in it"),
    ],
)
def test_what_is_no_container_is_refused_with_what_to_do(data: bytes, said: str, unpacked: Unpack) -> None:
    assert said in refusal(unpacked, data)


def raw_named(raw: bytes) -> bytes:
    """A zip whose one name is these bytes, with no word on their encoding."""
    return zipped({"x" * len(raw): b"1"}).replace(b"x" * len(raw), raw)


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("caf\u00e9".encode(), "caf\u00e9"),
        ("caf\u00e9".encode("cp437"), "caf\u00e9"),
        (b"plain", "plain"),
    ],
)
def test_a_zip_name_is_utf8_if_it_can_be_and_code_page_437_otherwise(
    raw: bytes, name: str, unpacked: Unpack
) -> None:
    assert unpacked(raw_named(raw))[0].path == name


def test_a_zip_name_that_says_utf8_is_read_so(unpacked: Unpack) -> None:
    assert unpacked(zipped({"caf\u00e9": b"1"}))[0].path == "caf\u00e9"


def test_a_tar_name_that_is_not_utf8_is_read_as_iso_8859_1(unpacked: Unpack) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT, encoding="iso-8859-1") as archive:
        archive.addfile(entry("caf\u00e9")[0])

    assert unpacked(data.getvalue(), "a.tar")[0].path == "caf\u00e9"


def test_an_attempt_that_is_over_stops_at_once(tmp_path: Path) -> None:
    def over() -> None:
        raise AttemptOver

    archive = tmp_path / "archive"
    archive.write_bytes(PACKED["a.zip"])

    with pytest.raises(AttemptOver):
        unpack(archive, "a.zip", tmp_path / "target", LIMITS, over)
    assert on_disk(tmp_path / "target") == {}


def test_a_full_disk_is_a_passing_fault(tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    archive = tmp_path / "archive"
    archive.write_bytes(PACKED["a.zip"])
    with pytest.raises(StepFailed) as caught:
        unpack(archive, "a.zip", tmp_path / "target", LIMITS, full)

    assert caught.value.kind is FailureKind.TRANSIENT
    assert "working storage is full" in caught.value.message


def test_a_target_that_is_not_fresh_is_never_overwritten(unpacked: Unpack, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "a.txt").write_text("mine")
    with pytest.raises(StepFailed) as caught:
        unpacked(PACKED["a.zip"])

    assert caught.value.kind is FailureKind.SYSTEM
    assert (tmp_path / "target" / "a.txt").read_text() == "mine"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["a.zip", "a.tar", "gnu.tar", "a.tar.gz", "a.tar.bz2", "bzip2.zip"]),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_a_damaged_container_is_unpacked_or_refused_and_nothing_else(
    name: str, changes: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    data = bytearray(SMALL[name])
    for at, value in changes:
        data[at % len(data)] = value
    (folder / "archive").write_bytes(data)
    kind = FailureKind.CONTENT
    try:
        unpack(folder / "archive", name, folder / "target", LIMITS, lambda: None)
    except StepFailed as refused:
        kind = refused.kind

    assert kind is FailureKind.CONTENT
    assert {path.name for path in folder.iterdir()} <= {"archive", "target"}


_FEW = {"a.txt": b"one", "folder/b.txt": b"two" * 50}
SMALL = {
    "a.zip": zipped(_FEW),
    "bzip2.zip": zipped(_FEW, method=zipfile.ZIP_BZIP2),
    "a.tar": tarred(_FEW),
    "gnu.tar": tarred({"long" * 40: b"1", **_FEW}, form=tarfile.GNU_FORMAT),
    "a.tar.gz": tarred(_FEW, "gz"),
    "a.tar.bz2": tarred(_FEW, "bz2"),
}
