import errno
import itertools
import struct
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.attempt import UNATTENDED, CheckedAttempt
from pipeline.containers.unpack import unpack
from pipeline.fixity import READ_CHUNK
from pipeline.outcome import AttemptOver, Later, StepFailed, WaitKind
from pipeline.states import FailureKind
from tests.support.packing import (
    LIMITS,
    PACKED,
    SMALL,
    Unpack,
    entry,
    on_disk,
    tar_with_header,
    tarred,
    zipped,
)


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpack:
    return Unpack(tmp_path)


def test_a_zip_header_that_lies_about_the_size_is_refused(unpacked: Unpack) -> None:
    data = zipped({"a": b"x" * 1000}).replace(struct.pack("<L", 1000), struct.pack("<L", 10))

    assert "damaged" in unpacked.refusal(data)


def test_a_tar_header_that_claims_much_memory_is_refused(unpacked: Unpack) -> None:
    header = bytearray(entry("././@PaxHeader", type=tarfile.XHDTYPE)[0].tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = b"%011o\0" % (1 << 32)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)

    assert "too many bytes" in unpacked.refusal(bytes(header) + bytes(4096), "a.tar")


def pax_record(keyword: bytes, value: bytes) -> bytes:
    length = len(keyword) + len(value) + 3
    while length != (longer := len(keyword) + len(value) + 3 + len(str(length))):
        length = longer
    return b"%d %s=%s\n" % (length, keyword, value)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"9" * 1_000_000, "a record of an extended header is damaged"),
        (b"2 " * 500_000 + b"=", "a record of an extended header is damaged"),
        (pax_record(b"path", b"9" * 999_000), "a name that is too long"),
        (pax_record(b"GNU.sparse.map", b"9" * 999_000), "a number that is too large"),
        (pax_record(b"path", b"a/" * 499_000), "a name that is too long"),
        (pax_record(b"hdrcharset", b"1" * 255) * 3_500, ""),
        (b"".join(pax_record(b"K%d" % n, b"1") for n in range(80_000)), ""),
        (pax_record(b"SCHILY.xattr.user.a", b"9" * 999_000), ""),
        (pax_record(b"path", b"/".join([b"9" * 255] * 3)) * 1_200, ""),
        (pax_record(b"GNU.sparse.offset", b"9" * 20) * 20_000, ""),
    ],
    ids=[
        *("digits", "pairs", "path", "map", "long", "charset"),
        *("keywords", "attribute", "paths", "offsets"),
    ],
)
def test_an_extended_tar_header_costs_no_more_than_its_size(
    payload: bytes, said: str, unpacked: Unpack
) -> None:
    """CVE-2024-6232, and whatever else grows with the square of a header; each has a megabyte."""
    data = tar_with_header(payload)
    began = time.process_time()
    refused = unpacked.refusal(data, "a.tar") if said else ""
    if not said:
        assert len(unpacked(data, "a.tar")) == 1

    assert time.process_time() - began < 1
    assert said in refused


def test_a_tar_header_that_points_backwards_is_refused_and_not_read_for_ever(unpacked: Unpack) -> None:
    header = bytearray(entry("a")[0].tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = b"\xff" * 10 + b"\xfe\x00"  # -512 in base 256
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)

    said = unpacked.refusal(bytes(header) + bytes(4096), "a.tar")

    # Pythons differ in what they notice first
    assert "'a' is neither a file nor a folder" in said or "container 'a.tar' is damaged" in said


@pytest.mark.parametrize("name", PACKED)
def test_a_truncated_container_is_refused_wherever_it_was_cut(name: str, tmp_path: Path) -> None:
    data = PACKED[name]
    end = data.rstrip(b"\0") if name.endswith("tar") else data  # a tar may be padded at its end
    cuts = [*range(1, 40), *range(40, len(end), 1499), len(end) - 1]
    archive = tmp_path / "archive"
    for cut in cuts:
        archive.write_bytes(data[:cut])
        with pytest.raises(StepFailed) as caught:
            list(unpack(archive, name, tmp_path / str(cut), LIMITS, UNATTENDED))
        assert caught.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar.bz2"])
@pytest.mark.parametrize("at", [0.3, 0.5, 0.7])
def test_a_flipped_bit_in_the_content_refuses_the_container(name: str, at: float, unpacked: Unpack) -> None:
    data = bytearray(PACKED[name])
    data[int(len(data) * at)] ^= 0x10

    assert "damaged" in unpacked.refusal(bytes(data), name)


def test_a_damaged_tar_header_is_not_taken_for_the_end(unpacked: Unpack) -> None:
    data = bytearray(tarred([entry("a", b"1"), entry("b", b"2")], form=tarfile.USTAR_FORMAT))
    data[1024] ^= 0x10

    assert "no end of archive after 'a'" in unpacked.refusal(bytes(data), "a.tar")


def test_a_zip_directory_that_points_before_its_beginning_is_refused(unpacked: Unpack) -> None:
    data = bytearray(zipped({"a": b"1"}))
    at = len(data) - 6  # where the directory begins, of the last record
    data[at : at + 4] = struct.pack("<L", struct.unpack_from("<L", data, at)[0] + 10)

    assert "its directory points before its beginning" in unpacked.refusal(bytes(data))


def test_a_zip_without_its_end_may_be_the_first_part_of_one_that_was_divided(unpacked: Unpack) -> None:
    said = unpacked.refusal(zipped({"a": bytes(100)})[:60], "photos.zip")

    assert "it has no end, as the first part of a zip that was divided" in said


def test_a_sparse_entry_whose_map_points_backwards_is_refused(unpacked: Unpack) -> None:
    map_back = {"GNU.sparse.major": "0", "GNU.sparse.size": "4096", "GNU.sparse.map": "0,-2048,0,512"}
    data = tarred([entry("a", bytes(512), pax_headers=map_back)])

    assert "a header points backwards" in unpacked.refusal(data, "a.tar")


def test_a_second_archive_behind_the_first_is_not_dropped(unpacked: Unpack) -> None:
    assert "something follows" in unpacked.refusal(tarred({"a": b"1"}) + tarred({"b": b"2"}), "a.tar")


def test_an_attempt_that_is_over_stops_at_once(unpacked: Unpack) -> None:
    def over() -> None:
        raise AttemptOver

    with pytest.raises(AttemptOver):
        unpacked(PACKED["a.zip"], attempt=CheckedAttempt(over))
    assert on_disk(unpacked.target) == {}


def test_an_attempt_that_is_over_stops_within_a_large_file(unpacked: Unpack) -> None:
    large = 10 * READ_CHUNK
    calls = itertools.count()

    def over_after_a_while() -> None:
        if next(calls) == 5:
            raise AttemptOver

    with pytest.raises(AttemptOver):
        unpacked(zipped({"large": bytes(large)}), attempt=CheckedAttempt(over_after_a_while))
    assert (unpacked.target / "large").stat().st_size < large


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_a_passing_fault(number: int, unpacked: Unpack) -> None:
    def full() -> None:
        raise OSError(number, "No space left on device")

    with pytest.raises(Later) as caught:
        unpacked(PACKED["a.zip"], attempt=CheckedAttempt(full))

    assert caught.value.kind is WaitKind.SPACE
    assert "working storage is full" in caught.value.message


def test_a_target_that_is_not_fresh_is_never_overwritten(unpacked: Unpack) -> None:
    unpacked.target.mkdir()
    (unpacked.target / "a.txt").write_text("mine")
    with pytest.raises(StepFailed) as caught:
        unpacked(PACKED["a.zip"])

    assert caught.value.kind is FailureKind.SYSTEM
    assert "could not be unpacked ([Errno 17]" in caught.value.message
    assert "repair working storage" in caught.value.message
    assert (unpacked.target / "a.txt").read_text() == "mine"


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
        list(unpack(folder / "archive", name, folder / "target", LIMITS, UNATTENDED))
    except StepFailed as refused:
        kind = refused.kind

    assert kind is FailureKind.CONTENT
    assert {path.name for path in folder.iterdir()} <= {"archive", "target"}
