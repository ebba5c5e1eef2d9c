"""Containers created in memory, valid and invalid, and the result of unpacking them."""

import io
import struct
import subprocess
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Literal

import pytest

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.containers.unpack import Limits, unpack
from pipeline.outcome import StepFailed
from pipeline.states import FailureKind
from pipeline.working_storage.workspace import DownloadedFile

LIMITS = Limits(entries=1000, bytes=1 << 30, ratio=200)
FILES = {
    "a.txt": b"one",
    "folder/b.txt": b"two",
    "folder/deeper/c.bin": bytes(range(256)) * 3000,
    "empty": b"",
}


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
    with tarfile.open(fileobj=data, mode=f"w:{kind}", format=form) as archive:  # type: ignore[call-overload]
        for info, content in pairs:
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def tar_with_header(payload: bytes) -> bytes:
    """A tar with an extended header of these bytes, before one empty file."""
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, len(payload)
    return header.tobuf() + payload + bytes(-len(payload) % 512) + tarfile.TarInfo("a").tobuf() + bytes(1024)


def blocks(form: Literal[0, 1], *changes: tuple[int, bytes]) -> bytes:
    """The header of an empty file, with other bytes at these places."""
    header = bytearray(tarfile.TarInfo("a.txt").tobuf(form))
    for at, value in changes:
        header[at : at + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def with_extra(packed: bytes, extra: bytes, name: str = "__.txt") -> bytes:
    """A zip of one entry with this extra field."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.extra = extra
        archive.writestr(info, packed)
    return data.getvalue()


def unicode_path(name: bytes, of: bytes = b"__.txt", version: int = 1) -> bytes:
    return struct.pack("<HHBL", 0x7075, 5 + len(name), version, zlib.crc32(of)) + name


def on_disk(folder: Path) -> dict[str, bytes]:
    """What a program unpacked, whatever modes it gave."""
    if folder.exists():
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=True)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


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

_FEW = {"a.txt": b"one", "folder/b.txt": b"two" * 50}
SMALL = {
    "a.zip": zipped(_FEW),
    "bzip2.zip": zipped(_FEW, method=zipfile.ZIP_BZIP2),
    "a.tar": tarred(_FEW),
    "gnu.tar": tarred({"long" * 40: b"1", **_FEW}, form=tarfile.GNU_FORMAT),
    "a.tar.gz": tarred(_FEW, "gz"),
    "a.tar.bz2": tarred(_FEW, "bz2"),
}


class Unpack:
    """Unpack bytes into `target`."""

    def __init__(self, folder: Path) -> None:
        self.archive = folder / "archive"
        self.target = folder / "target"

    def __call__(
        self,
        data: bytes,
        name: str = "a.zip",
        limits: Limits = LIMITS,
        attempt: Attempt = UNATTENDED,
    ) -> tuple[DownloadedFile, ...]:
        self.archive.write_bytes(data)
        return tuple(unpack(self.archive, name, self.target, limits, attempt))

    def refusal(self, data: bytes, name: str = "a.zip", limits: Limits = LIMITS) -> str:
        """The message for the depositor."""
        with pytest.raises(StepFailed) as caught:
            self(data, name, limits)
        assert caught.value.kind is FailureKind.CONTENT
        assert name in caught.value.message
        return caught.value.message
