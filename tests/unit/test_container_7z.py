import errno
import hashlib
import itertools
import struct
import zlib
from pathlib import Path

import py7zr
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.fixity import PIECE
from pipeline.formats import container_7z
from pipeline.formats.container import RATIO_FLOOR, Limits
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.states import FailureKind
from tests.packing import FILES, Unpack, on_disk
from tests.packing_7z import COPY, DIRECTORY, REPARSE_POINT, UNIX, packed, plain, renamed, sealed


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpack:
    return Unpack(tmp_path)


@pytest.mark.parametrize(
    "filters",
    [
        None,
        COPY,
        [{"id": py7zr.FILTER_X86}, {"id": py7zr.FILTER_LZMA}],
        [{"id": py7zr.FILTER_PPMD, "order": 6, "mem": 24}],
    ],
    ids=["lzma2", "copy", "x86 and lzma", "ppmd"],
)
def test_everything_in_a_7z_archive_arrives(filters: list[dict[str, int]], unpacked: Unpack) -> None:
    files = unpacked(packed(FILES, filters), "a.7z")

    assert on_disk(unpacked.target) == FILES
    assert {file.path: (file.size, file.sha512) for file in files} == {
        path: (len(content), hashlib.sha512(content).hexdigest()) for path, content in FILES.items()
    }


def test_the_content_tells_a_7z_not_the_name(unpacked: Unpack) -> None:
    assert len(unpacked(packed(FILES), "misnamed.zip")) == len(FILES)


def test_blocks_one_after_the_other_arrive(unpacked: Unpack, tmp_path: Path) -> None:
    archive = tmp_path / "in parts"
    for name, content in FILES.items():
        with py7zr.SevenZipFile(archive, "a") as opened:
            opened.writestr(content, name)
    unpacked(archive.read_bytes(), "a.7z")

    assert on_disk(unpacked.target) == FILES


def test_folders_of_a_7z_leave_nothing_unless_files_are_in_them(unpacked: Unpack, tmp_path: Path) -> None:
    (tmp_path / "given" / "empty").mkdir(parents=True)
    (tmp_path / "given" / "a").write_bytes(b"1")
    with py7zr.SevenZipFile(tmp_path / "a.7z", "w") as archive:
        archive.writeall(tmp_path / "given", "given")
    unpacked((tmp_path / "a.7z").read_bytes(), "a.7z")

    assert sorted(path.name for path in unpacked.target.rglob("*")) == ["a", "given"]


@pytest.mark.parametrize("empty_file", [True, False])
def test_an_entry_without_bytes_or_attributes_is_a_folder_unless_it_is_said_to_be_a_file(
    empty_file: bool, unpacked: Unpack
) -> None:
    names = b"\x11\x05\x00b\x00\x00\x00"
    directory = b"\x01\x05\x01\x0e\x01\x80" + b"\x0f\x01\x80" * empty_file + names + b"\x00\x00"
    data = sealed(
        container_7z.MAGIC + b"\x00\x04" + bytes(4) + struct.pack("<QQL", 0, len(directory), 0) + directory
    )

    if empty_file:
        assert unpacked(data, "a.7z")[0].size == 0
    else:
        assert "no files in it" in unpacked.refusal(data, "a.7z")


@pytest.mark.parametrize("name", ["../up", "/abs", "new\nl"])
def test_an_unsafe_name_refuses_a_7z_before_anything_is_written(name: str, unpacked: Unpack) -> None:
    data = renamed(plain({"good": b"1", "x" * len(name): b"2"}), "x" * len(name), name)

    assert "rename it" in unpacked.refusal(data, "a.7z")
    assert on_disk(unpacked.target) == {}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", "a"], "given twice"),
        (["a/b", "A/B"], "upper and lower case"),
    ],
)
def test_names_that_clash_in_a_7z_refuse_it(names: list[str], said: str, unpacked: Unpack) -> None:
    assert said in unpacked.refusal(packed([(name, b"1") for name in names]), "a.7z")


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        (UNIX | 0o120777 << 16, "symbolic link"),
        (REPARSE_POINT, "symbolic link"),
        (UNIX | 0o100644 << 16 | REPARSE_POINT, "symbolic link"),
        (UNIX | 0o010644 << 16, "neither a file nor a folder"),
        (UNIX | 0o020644 << 16, "neither a file nor a folder"),
        (DIRECTORY, "cannot have 11 bytes"),
    ],
)
def test_links_and_devices_in_a_7z_are_refused(attributes: int, said: str, unpacked: Unpack) -> None:
    message = unpacked.refusal(plain({"good": b"1", "bad": b"/etc/passwd"}, attributes), "a.7z")

    assert said in message
    assert "'bad'" in message
    assert on_disk(unpacked.target) == {}


def test_too_many_entries_of_a_7z_refuse_it(unpacked: Unpack) -> None:
    limits = Limits(entries=3, bytes=1 << 20, ratio=200)

    assert "more than 3" in unpacked.refusal(packed({str(n): b"" for n in range(4)}), "a.7z", limits)


def test_more_bytes_than_allowed_refuse_a_7z(unpacked: Unpack) -> None:
    limits = Limits(entries=10, bytes=1000, ratio=200)

    assert "'b'" in unpacked.refusal(packed({"a": b"x" * 600, "b": b"x" * 600}), "a.7z", limits)


def test_a_7z_bomb_is_stopped_by_its_ratio(unpacked: Unpack) -> None:
    data = packed({"zeros": bytes(RATIO_FLOOR + 1)}, [{"id": py7zr.FILTER_LZMA2, "preset": 0}])
    unpacked.refusal(data, "a.7z", Limits(entries=10, bytes=1 << 40, ratio=2))

    assert (unpacked.target / "zeros").stat().st_size <= RATIO_FLOOR


def test_a_7z_that_claims_more_memory_than_its_reader_has_is_refused(unpacked: Unpack) -> None:
    data = bytearray(plain({"a": b"1" * 100}, filters=[{"id": py7zr.FILTER_LZMA2, "preset": 0}]))
    data[data.index(b"\x21\x21\x01") + 3] = 40  # the property of LZMA2: a dictionary of 4 GiB

    assert "needs more than 1024 MiB of memory" in unpacked.refusal(sealed(bytes(data)), "a.7z")


def test_a_7z_by_a_method_that_is_not_read_is_refused_with_what_to_do(unpacked: Unpack) -> None:
    data = plain({"a": b"1" * 100}, filters=[{"id": py7zr.FILTER_LZMA2, "preset": 0}])
    unknown = data.replace(b"\x21\x21\x01", b"\x21\x22\x01")

    assert "pack it by LZMA2" in unpacked.refusal(sealed(unknown), "a.7z")


@pytest.mark.parametrize("options", [{}, {"header_encryption": True}], ids=["content", "names too"])
def test_an_encrypted_7z_is_refused(options: dict[str, bool], unpacked: Unpack) -> None:
    data = packed({"a": b"1"}, password="secret", **options)

    assert "is encrypted; pack it without a password" in unpacked.refusal(data, "a.7z")


@pytest.mark.parametrize(
    "data",
    [packed({}), sealed(container_7z.MAGIC + b"\x00\x04" + bytes(24))],
    ids=["no entries", "no directory"],
)
def test_a_7z_without_files_is_refused(data: bytes, unpacked: Unpack) -> None:
    assert "no files in it" in unpacked.refusal(data, "a.7z")


def test_a_truncated_7z_is_refused_wherever_it_was_cut(unpacked: Unpack) -> None:
    data = packed(FILES)
    for cut in [*range(6, 40), *range(40, len(data), 499), len(data) - 1]:
        message = unpacked.refusal(data[:cut], "a.7z")

        assert "ends within its first header" in message or "is the first of several volumes" in message


def test_what_follows_a_7z_is_not_dropped(unpacked: Unpack) -> None:
    assert "something follows its end" in unpacked.refusal(packed({"a": b"1"}) * 2, "a.7z")


def test_the_second_of_several_volumes_is_no_archive_we_know(unpacked: Unpack) -> None:
    assert "no archive we know" in unpacked.refusal(packed(FILES)[1000:], "a.7z.002")


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (10, "damaged, truncated or of an unusual kind (its first header is damaged)"),
        (20, "its first header is damaged"),
        (0.5, "damaged"),
        (0.9, "damaged"),
        (-3, "Bad7zFile: invalid header data"),
    ],
)
def test_a_flipped_bit_refuses_a_7z(at: float, said: str, unpacked: Unpack) -> None:
    data = bytearray(packed(FILES))
    data[at if isinstance(at, int) else int(len(data) * at)] ^= 0x10

    assert said in unpacked.refusal(bytes(data), "a.7z")


def test_content_that_is_not_what_was_packed_is_told_by_its_name(unpacked: Unpack) -> None:
    data = packed({"a": b"one", "b": b"two"}, COPY).replace(b"two", b"TWO")

    assert "the checksum of b is wrong" in unpacked.refusal(data, "a.7z")


@pytest.mark.parametrize(
    ("content", "said"), [(b"two", ""), (b"TWO", "a block is wrong"), (b"TWO" + bytes(5000), "b is wrong")]
)
def test_the_checksum_of_a_block_is_looked_at_if_its_file_has_none(
    content: bytes, said: str, unpacked: Unpack
) -> None:
    """Written by hand: one file, whose checksum stands with its block, and perhaps some more in the block."""
    length = b"\xc0" + struct.pack("<H", len(content))
    crc = struct.pack("<L", zlib.crc32(b"two"))
    streams = (
        b"\x06\x00\x01\x09" + length + b"\x00\x07\x0b\x01\x00\x01\x01\x00\x0c\x03\x0a\x01" + crc + b"\x00"
    )
    directory = b"\x01\x04" + streams + b"\x08\x00\x00" + b"\x05\x01\x11\x05\x00b\x00\x00\x00" + b"\x00\x00"
    head = container_7z.MAGIC + b"\x00\x04" + bytes(4) + struct.pack("<QQL", len(content), len(directory), 0)
    data = sealed(head + content + directory)

    if not said:
        assert unpacked(data, "a.7z")[0].path == "b"
    else:
        assert f"the checksum of {said}" in unpacked.refusal(data, "a.7z")


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_7z_with_a_damaged_directory_is_unpacked_or_refused_and_nothing_else(
    changes: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its checksums are right, so that what it says is read."""
    unpacked = Unpack(tmp_path_factory.mktemp("fuzz"))
    data = bytearray(plain({"a.txt": b"one", "folder/b.txt": b"two" * 50, "empty": b""}))
    start = 32 + struct.unpack_from("<Q", data, 12)[0]
    for at, value in changes:
        data[start + at % (len(data) - start)] = value
    kind = FailureKind.CONTENT
    try:
        unpacked(sealed(bytes(data)), "a.7z")
    except StepFailed as refused:
        kind = refused.kind

    assert kind is FailureKind.CONTENT


def test_an_attempt_that_is_over_stops_within_a_large_file_of_a_7z(unpacked: Unpack) -> None:
    calls = itertools.count()

    def over_after_a_while() -> None:
        if next(calls) == 5:
            raise AttemptOver

    with pytest.raises(AttemptOver):
        unpacked(packed({"large": bytes(10 * PIECE)}, COPY), "a.7z", alive=over_after_a_while)
    assert (unpacked.target / "large").stat().st_size < 10 * PIECE


def test_a_full_disk_is_a_passing_fault_for_a_7z_too(unpacked: Unpack) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StepFailed) as caught:
        unpacked(packed(FILES), "a.7z", alive=full)

    assert caught.value.kind is FailureKind.TRANSIENT
