"""7z archives made in memory, by py7zr as far as that makes them."""

import io
import struct
import zlib
from collections.abc import Iterable

import py7zr

COPY = [{"id": py7zr.FILTER_COPY}]
DIRECTORY, REPARSE_POINT, UNIX = 0x10, 0x400, 0x8000


def packed(
    files: dict[str, bytes] | Iterable[tuple[str, bytes]],
    filters: list[dict[str, int]] | None = None,
    **options: object,
) -> bytes:
    """One solid block of these files."""
    data = io.BytesIO()
    with py7zr.SevenZipFile(data, "w", filters=filters, **options) as archive:  # type: ignore[arg-type]
        for name, content in files.items() if isinstance(files, dict) else files:
            archive.writestr(content, name)
    return data.getvalue()


def renamed(data: bytes, old: str, new: str) -> bytes:
    """The archive with a name that py7zr would not write; its directory has to be plain."""
    assert len(old) == len(new)
    return sealed(data.replace(old.encode("utf-16-le"), new.encode("utf-16-le")))


def sealed(data: bytes) -> bytes:
    """With the checksums of a directory and a header that were changed."""
    place, size = struct.unpack_from("<QQ", data, 12)
    directory = zlib.crc32(data[32 + place : 32 + place + size])
    rest = struct.pack("<QQL", place, size, directory)
    return data[:8] + struct.pack("<L", zlib.crc32(rest)) + rest + data[32:]


def plain(
    files: dict[str, bytes], attributes: int | None = None, filters: list[dict[str, int]] = COPY
) -> bytes:
    """With a directory that is not compressed, so that it can be changed, and the last file's attributes."""
    data = io.BytesIO()
    with py7zr.SevenZipFile(data, "w", filters=filters) as archive:
        archive.set_encoded_header_mode(False)
        for name, content in files.items():
            archive.writestr(content, name)
        if attributes is not None:
            archive.header.files_info.files[-1]["attributes"] = attributes  # type: ignore[union-attr]
    return data.getvalue()
