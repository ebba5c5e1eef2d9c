"""Names and headers in containers: ours are those that were packed, and those that other programs read."""

import io
import os
import shutil
import stat
import struct
import subprocess
import tarfile
import unicodedata
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipeline.attempt import UNATTENDED
from pipeline.containers.unpack import unpack
from pipeline.errors import ArklineError
from pipeline.names import UnsafeName, duplicates, safe_name
from tests.support.fuzzing import result_or_refusal
from tests.support.packing import LIMITS, blocks, entry, on_disk, tarred, unicode_path, with_extra, zipped
from tests.support.requirements import unavailable

SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]

FORMS = {"gnu.tar": tarfile.GNU_FORMAT, "ustar.tar": tarfile.USTAR_FORMAT, "pax.tar": tarfile.PAX_FORMAT}

SEGMENTS = st.one_of(
    st.text(min_size=1, max_size=12),
    st.sampled_from([" a ", "a;1", "-a", "a.", "caf\u00e9", "cafe\u0301", "\U0001f600", "a:b*?", "e" * 90]),
)
NAMES = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)


def is_safe(name: str) -> bool:
    try:
        return bool(safe_name(name))
    except UnsafeName:
        return False


def packed(kind: str, names: list[str]) -> bytes:
    """Each file has its own number as content."""
    files = [(name, str(number).encode()) for number, name in enumerate(names)]
    if kind == "a.zip":
        return zipped(files)
    try:
        return tarred([entry(*file) for file in files], form=FORMS[kind])
    except ValueError:  # ustar holds no such name
        assume(False)
        raise


@pytest.mark.parametrize("kind", ["a.zip", *FORMS])
@settings(suppress_health_check=SLOW)
@given(name=NAMES)
def test_a_packed_name_is_read_as_it_is_or_refused_with_nothing_written(
    kind: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assume(not name.startswith(("./", "/")) and not name.endswith("/"))
    assume(kind in ("a.zip", "pax.tar") or not name.endswith("\0"))  # the header is filled with NUL
    folder = tmp_path_factory.mktemp("names")
    data = packed(kind, [name.replace("\0", "_")])
    if kind == "a.zip" and "\0" in name:  # zipfile itself would cut the name
        data = data.replace(name.replace("\0", "_").encode(), name.encode())
    elif "\0" in name:
        data = packed(kind, [name])
    (folder / "archive").write_bytes(data)

    files = result_or_refusal(
        lambda: list(unpack(folder / "archive", kind, folder / "target", LIMITS, UNATTENDED))
    )

    if isinstance(files, ArklineError):
        assert not is_safe(name)
        assert on_disk(folder / "target") == {}
    else:
        assert [file.path for file in files] == [name]
    shutil.rmtree(folder)


def _run(program: str, archive: Path, target: Path) -> subprocess.CompletedProcess[bytes]:
    if shutil.which(program) is None:
        unavailable(f"{program} is missing: apt-get install unzip libarchive-tools p7zip-full")
    target.mkdir()
    command = {
        "tar": ["tar", "-xf", str(archive), "-C", str(target)],
        "bsdtar": ["bsdtar", "-xPf", str(archive), "-C", str(target)],  # -P: A:0 stays A:0
        "unzip": ["unzip", "-q", "-V", str(archive), "-d", str(target)],  # -V: a;1 stays a;1
        "7z": ["7z", "x", "-y", f"-o{target}", str(archive)],
    }[program]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)


def _read(program: str, archive: Path, target: Path) -> dict[str, bytes]:
    done = _run(program, archive, target)
    assert done.returncode == 0, done.stderr
    return on_disk(target)


READERS = [
    *((program, kind) for program in ("tar", "bsdtar", "7z") for kind in FORMS),
    *((program, "a.zip") for program in ("unzip", "bsdtar", "7z")),
]


@pytest.mark.parametrize(("program", "kind"), READERS)
@settings(suppress_health_check=SLOW, max_examples=settings().max_examples // 4, deadline=None)
@given(names=st.lists(NAMES.filter(is_safe), min_size=1, max_size=6))
def test_other_programs_read_the_same_files(
    program: str, kind: str, names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assume(not duplicates(names))
    folder = tmp_path_factory.mktemp("readers")
    archive = folder / kind
    archive.write_bytes(packed(kind, names))

    list(unpack(archive, kind, folder / "ours", LIMITS, UNATTENDED))

    theirs, ours = _read(program, archive, folder / "theirs"), on_disk(folder / "ours")
    if program == "bsdtar":  # composes letters
        theirs, ours = (
            {unicodedata.normalize("NFC", n): data for n, data in files.items()} for files in (theirs, ours)
        )
    assert theirs == ours
    shutil.rmtree(folder)


def _zip(packed: bytes = b"1", name: str = "a.txt", **fields: Any) -> bytes:
    """A zip of an entry with these fields, before an ordinary one."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        info = zipfile.ZipInfo(name)
        for field, value in fields.items():
            setattr(info, field, value)
        archive.writestr(info, packed)
        archive.writestr("b.txt", b"2")
    return data.getvalue()


def _gnu(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    return tarred(list(entries), form=tarfile.GNU_FORMAT)


def _posix(*changes: tuple[int, bytes]) -> bytes:
    return blocks(tarfile.USTAR_FORMAT, *changes) + bytes(1024)


def _as_folder(packed: bytes, system: int) -> bytes:
    attributes = {0: 0x10, 3: stat.S_IFDIR << 16}[system]
    return _zip(packed, "plates", create_system=system, external_attr=attributes)


Files = dict[str, bytes] | None
"""None: refused, or nothing is written."""

TIMES = (345, b"15301531635\0" * 2)
STAR = ((345, b"f" * 130 + b"\0" + b"00000000001 " * 2), (508, b"tar\0"))
A, B = {"a.txt": b""}, {"b.txt": b"2"}
KYOTO = "\u4eac\u90fd.txt"
NEW, OLD = {"new.txt": b"1"}, {"__.txt": b"1"}
VOLUME = {"GNU.volume.filename": "a.txt", "GNU.volume.offset": "0"}

HEADERS: dict[str, tuple[bytes, Files, dict[str, Files]]] = {
    "tar: times in a GNU header": (
        blocks(tarfile.GNU_FORMAT, TIMES) + bytes(1024),
        A,
        {"7z": {"15301531635/a.txt": b""}},
    ),
    "tar: a prefix": (_posix((345, b"folder")), {"folder/a.txt": b""}, {}),
    "tar: a prefix and times of star": (_posix(*STAR), {"f" * 130 + "/a.txt": b""}, {}),
    "tar: a prefix before POSIX": (_posix((345, b"folder"), (257, bytes(8))), A, {}),
    "tar: a NUL within a name": (
        _posix((0, b"a\0b.txt")),
        None,
        {program: {"a": b""} for program in ("tar", "bsdtar", "7z")},
    ),
    "tar: a volume label": (
        _gnu(entry("May", type=b"V"), entry("a.txt")),
        A,
        {"7z": {"May": b"", "a.txt": b""}},
    ),
    "tar: a list of a folder": (
        _gnu(entry("docs/", b"Ya.txt\0\0", type=b"D"), entry("docs/a.txt")),
        {"docs/a.txt": b""},
        {},
    ),
    "tar: an empty file whose name ends in a slash": (
        tarred([entry("docs/"), entry("a.txt")]),
        A,
        {},
    ),
    "tar: access rights of Solaris": (
        _gnu(entry("a.txt", b"1000006\0user::rw-,group::r--,mask:r--,other:r--", type=b"A"), entry("a.txt")),
        A,
        {},
    ),
    "tar: a prefix that ends in a slash": (_posix((345, b"folder/")), {"folder/a.txt": b""}, {}),
    "tar: the rest of a file of another volume": (
        _gnu(entry("a.txt", b"1", type=b"M")),
        None,
        {program: {"a.txt": b"1"} for program in ("bsdtar", "7z")},
    ),
    "tar: a file of another volume, extended": (
        tarred([entry("a.txt", b"1", pax_headers=VOLUME)]),
        None,
        {program: {"a.txt": b"1"} for program in ("tar", "bsdtar", "7z")},
    ),
    "zip: a Unicode Path": (with_extra(b"1", unicode_path(KYOTO.encode())), {KYOTO: b"1"}, {}),
    "zip: a stale Unicode Path": (with_extra(b"1", unicode_path(b"new.txt", of=b"other")), OLD, {}),
    "zip: a Unicode Path of version 2": (
        with_extra(b"1", unicode_path(b"new.txt", version=2)),
        OLD,
        {"bsdtar": NEW},
    ),
    "zip: an extra field that is no list": (with_extra(b"1", b"camera"), OLD, {"bsdtar": None}),
    "zip: an extra field that is too long": (with_extra(b"1", b"\1\2\xff\xff"), OLD, {"bsdtar": None}),
    "zip: another name before the content": (
        zipped({"old.txt": b"1"}).replace(b"old.txt", b"new.txt", 1),
        {"old.txt": b"1"},
        {"bsdtar": NEW},
    ),
    "zip: a backslash before the content": (
        zipped({"a/b": b"1"}).replace(b"a/b", b"a\\b", 1),
        {"a/b": b"1"},
        {},
    ),
    "zip: backslashes of Windows": (
        _zip(name="a\\b", create_system=0),
        {"a/b": b"1", **B},
        {"7z": {"a\\b": b"1", **B}},
    ),
    "zip: a pipe of Windows": (_zip(create_system=0, external_attr=0o10644 << 16), {"a.txt": b"1", **B}, {}),
    "zip: a folder by DOS attributes": (_as_folder(b"", 0), B, {"unzip": {"plates": b"", **B}}),
    "zip: a folder by Unix attributes": (_as_folder(b"", 3), B, {"unzip": {"plates": b"", **B}}),
    "zip: content with a folder's DOS attributes": (
        _as_folder(b"1", 0),
        {"plates": b"1", **B},
        dict.fromkeys(("bsdtar", "7z"), B),
    ),
    "zip: content with a folder's Unix attributes": (
        _as_folder(b"1", 3),
        {"plates": b"1", **B},
        dict.fromkeys(("bsdtar", "7z"), B),
    ),
    "zip: a folder with content": (
        _zip(b"1", "plates/"),
        None,
        dict.fromkeys(("unzip", "bsdtar", "7z"), B),
    ),
    "zip: a NUL within a name": (
        zipped({"a_b.txt": b"1"}).replace(b"a_b.txt", b"a\0b.txt"),
        None,
        {program: {"a": b"1"} for program in ("unzip", "bsdtar")},
    ),
}
"""Header -> the archive, what is read here, and what the programs read that read it differently.

The differences are those of decision 73, and no others.
"""

PROGRAMS = {"tar": ("tar", "bsdtar", "7z"), "zip": ("unzip", "bsdtar", "7z")}


@pytest.mark.parametrize("header", HEADERS)
def test_headers_are_read_as_other_programs_do_but_for_the_differences_that_were_decided(
    header: str, tmp_path: Path
) -> None:
    data, ours, others = HEADERS[header]
    kind = header.partition(":")[0]
    archive = tmp_path / f"a.{kind}"
    archive.write_bytes(data)

    read = result_or_refusal(
        lambda: list(unpack(archive, archive.name, tmp_path / "ours", LIMITS, UNATTENDED))
    )
    seen = {}
    for program in PROGRAMS[kind]:
        _run(program, archive, tmp_path / program)
        seen[program] = on_disk(tmp_path / program) or None

    assert (None if isinstance(read, ArklineError) else on_disk(tmp_path / "ours")) == ours
    assert {program: files for program, files in seen.items() if files != ours} == others


WORDS = st.text("ab1 .-", min_size=1, max_size=150).filter(lambda word: word.strip(" .") == word)


@pytest.mark.parametrize("program", ["tar", "bsdtar", "7z"])
@settings(suppress_health_check=SLOW, max_examples=settings().max_examples // 4, deadline=None)
@given(
    before=WORDS,
    magic=st.sampled_from([b"ustar\x0000", b"ustar  \0", bytes(8)]),
    end=st.sampled_from([b"", b"tar\0"]),
)
def test_the_bytes_after_a_tar_header_are_read_as_other_programs_do(
    program: str, before: str, magic: bytes, end: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assume(program != "7z" or magic != b"ustar  \0")  # it takes times for a folder
    folder = tmp_path_factory.mktemp("headers")
    archive = folder / "a.tar"
    archive.write_bytes(_posix((257, magic), (345, before.encode()), (508, end)))

    list(unpack(archive, "a.tar", folder / "ours", LIMITS, UNATTENDED))

    assert _read(program, archive, folder / "theirs") == on_disk(folder / "ours")
    shutil.rmtree(folder)


@pytest.mark.parametrize("program", ["unzip", "bsdtar", "7z"])
@settings(suppress_health_check=SLOW, max_examples=settings().max_examples // 4, deadline=None)
@given(
    field=WORDS,
    of=st.sampled_from([b"a.txt", b"old.txt"]),
    other=st.binary(max_size=20),
    attributes=st.sampled_from([(0, 0), (0, 0x20), (3, 0o100644 << 16), (0, 0x10), (3, 0o40755 << 16)]),
    packed=st.sampled_from([b"", b"1"]),
)
def test_the_fields_of_a_zip_entry_are_read_as_other_programs_do(
    program: str,
    field: str,
    of: bytes,
    other: bytes,
    attributes: tuple[int, int],
    packed: bytes,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    is_folder = attributes[1] in (0x10, 0o40755 << 16)
    assume(not is_folder or (program == "unzip") == bool(packed))
    folder = tmp_path_factory.mktemp("fields")
    archive = folder / "a.zip"
    extra = struct.pack("<HH", 0x6375, len(other)) + other + unicode_path(field.encode(), of)
    archive.write_bytes(_zip(packed, extra=extra, create_system=attributes[0], external_attr=attributes[1]))

    list(unpack(archive, "a.zip", folder / "ours", LIMITS, UNATTENDED))

    assert _read(program, archive, folder / "theirs") == on_disk(folder / "ours")
    shutil.rmtree(folder)
