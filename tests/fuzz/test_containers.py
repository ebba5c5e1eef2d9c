"""Tars and zips whose headers have any values; `test_unpack_damage` changes single bytes of good ones."""

import io
import shutil
import tarfile
import zipfile
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.attempt import UNATTENDED
from pipeline.containers.unpack import unpack
from pipeline.errors import ArklineError
from pipeline.outcome import StepFailed
from pipeline.states import FailureKind
from tests.support.fuzzing import WORDS, result_or_refusal
from tests.support.packing import LIMITS

SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

KEYWORDS = st.sampled_from(
    [
        *("size", "path", "linkpath", "mtime", "uid", "gid", "uname", "hdrcharset", "comment"),
        *("GNU.sparse.major", "GNU.sparse.minor", "GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.name"),
        *("GNU.sparse.realsize", "GNU.sparse.numblocks", "GNU.sparse.offset", "SCHILY.xattr.a"),
    ]
)
HEADERS = st.dictionaries(
    KEYWORDS, st.one_of(WORDS, st.sampled_from(["BINARY", "0,1,2", "1,-1"])), max_size=4
)
NAMES = st.one_of(WORDS, st.sampled_from(["a", "b/c", "a/", "A", "a/b"]))
TYPES = st.sampled_from(
    [
        tarfile.REGTYPE,
        tarfile.REGTYPE,
        tarfile.DIRTYPE,
        tarfile.SYMTYPE,
        tarfile.GNUTYPE_SPARSE,
        b"x",
        b"g",
        b"L",
        b"\xff",
    ]
)


def _pax(headers: dict[str, str]) -> bytes:
    """Records as a tar program would never write them."""
    return b"".join(
        b"%d %s=%s\n" % (len(value) + 9, key.encode(), value.encode("utf-8", "surrogatepass"))
        for key, value in headers.items()
    )


def _member(name: str, kind: bytes, size: int, headers: dict[str, str]) -> bytes:
    info = tarfile.TarInfo("m")
    info.type, info.size = kind, size
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    field = name.encode("utf-8", "surrogatepass")[:100]
    header[: len(field)] = field
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    if not headers:
        return bytes(header)
    payload = _pax(headers)
    extended = tarfile.TarInfo("x")
    extended.type, extended.size = tarfile.XHDTYPE, len(payload)
    return extended.tobuf(tarfile.USTAR_FORMAT) + payload + bytes(-len(payload) % 512) + bytes(header)


MEMBERS = st.builds(
    lambda name, kind, size, data, headers: (
        _member(name, kind, size, headers) + data + bytes(-len(data) % 512)
    ),
    NAMES,
    TYPES,
    st.sampled_from([0, 1, 512, 513, 1 << 20, 1 << 32]),
    st.binary(max_size=600),
    HEADERS,
)
TARS = st.lists(MEMBERS, max_size=4).map(lambda members: b"".join(members) + bytes(1024))


@st.composite
def zips(draw: Any) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(draw(st.integers(0, 3))):
            info = zipfile.ZipInfo(draw(NAMES).encode("utf-8", "replace").decode()[:60_000] or str(number))
            info.external_attr = draw(st.integers(0, (1 << 32) - 1))
            info.extra = draw(st.binary(max_size=40))
            archive.writestr(info, draw(st.binary(max_size=60)))
    content = bytearray(data.getvalue())
    for at, value in draw(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 255)), max_size=6)):
        content[-min(at, len(content))] = value  # the directory is at the end
    return bytes(content)


@settings(suppress_health_check=SLOW)
@given(data=TARS, name=st.sampled_from(["a.tar", "a.tar.gz", "a"]))
def test_a_tar_of_any_headers_is_unpacked_or_refused(
    data: bytes, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _check(data, name, tmp_path_factory)


@settings(suppress_health_check=SLOW)
@given(data=zips())
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_of_any_entries_is_unpacked_or_refused(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _check(data, "a.zip", tmp_path_factory)


def _check(data: bytes, name: str, folders: pytest.TempPathFactory) -> None:
    folder = folders.mktemp("fuzz")
    (folder / "archive").write_bytes(data)

    result = result_or_refusal(
        lambda: list(unpack(folder / "archive", name, folder / "target", LIMITS, UNATTENDED))
    )

    if isinstance(result, ArklineError):
        assert isinstance(result, StepFailed)
        assert result.kind is FailureKind.CONTENT
    assert {path.name for path in folder.iterdir()} <= {"archive", "target"}
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    shutil.rmtree(folder)
