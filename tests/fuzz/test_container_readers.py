"""Names in containers: ours are those that were packed, and those that other programs read."""

import os
import shutil
import subprocess
import tarfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipeline.attempt import UNATTENDED
from pipeline.containers.unpack import unpack
from pipeline.errors import ArklineError
from pipeline.names import UnsafeName, duplicates, safe_name
from tests.support.fuzzing import result_or_refusal
from tests.support.packing import LIMITS, entry, on_disk, tarred, zipped
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


def _read(program: str, archive: Path, target: Path) -> dict[str, bytes]:
    target.mkdir()
    command = {
        "tar": ["tar", "-xf", str(archive), "-C", str(target)],
        "bsdtar": ["bsdtar", "-xPf", str(archive), "-C", str(target)],  # -P: A:0 stays A:0
        "unzip": ["unzip", "-q", "-V", str(archive), "-d", str(target)],  # -V: a;1 stays a;1
        "7z": ["7z", "x", "-y", f"-o{target}", str(archive)],
    }[program]
    done = subprocess.run(
        command, env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, check=False, timeout=60
    )
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
    if shutil.which(program) is None:
        unavailable(f"{program} is missing: apt-get install unzip libarchive-tools p7zip-full")
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
