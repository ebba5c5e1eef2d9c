"""zip containers."""

import contextlib
import io
import stat
import zipfile
from collections.abc import Iterator
from functools import partial

from pipeline.containers.base import Archive, Entry
from pipeline.fixity import READ_CHUNK
from pipeline.names import quote_name
from pipeline.outcome import content

_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")

_METHODS = {zipfile.ZIP_STORED: READ_CHUNK, zipfile.ZIP_DEFLATED: READ_CHUNK, zipfile.ZIP_BZIP2: 4096}
"""The methods accepted, with the bytes read at a time: zipfile unpacks bzip2 without a limit, and 4 KiB of
it hold 80 MB at most. LZMA is refused because its header may claim 4 GiB of memory."""

_DIRECTORY_LIMIT = 64 << 20
"""Bytes of a directory: 100,000 entries with names of 500 bytes. zipfile reads it at once."""

_ENCRYPTED = 0x1
_UTF8_NAME = 0x800
_CENTRAL_ENTRY = b"PK\x01\x02"


class Zip:
    def recognizes(self, archive: Archive, head: bytes) -> bool:
        """A zip may have something in front, such as the program of a self-extracting one."""
        return head.startswith(_SIGNATURES) or (
            archive.name.lower().endswith(".zip") and zipfile.is_zipfile(archive.path)
        )

    @contextlib.contextmanager
    def entries(self, archive: Archive) -> Iterator[Iterator[Entry]]:
        with _ZipFile(archive) as file, zipfile.ZipFile(file) as opened:
            yield map(partial(_entry, archive, opened), opened.infolist())


class _ZipFile(io.FileIO):
    """The archive's file, which refuses to return a directory of too many entries.

    zipfile reads the directory at once and makes an object per entry before it returns the first.
    """

    def __init__(self, archive: Archive) -> None:
        super().__init__(archive.path)
        self._archive = archive

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _DIRECTORY_LIMIT:
            raise content(
                f"{self._archive.title} has a directory of {size:,} bytes, more than {_DIRECTORY_LIMIT:,}: "
                "divide it"
            )
        data = super().read(-1 if size is None else size) or b""
        limit = self._archive.max_entries
        if len(data) > READ_CHUNK and data.count(_CENTRAL_ENTRY) > limit:
            raise content(f"{self._archive.title} has more than {limit} entries: divide it")
        return data

    def seek(self, position: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_SET and position < 0:
            raise zipfile.BadZipFile("its directory points before its beginning")
        return super().seek(position, whence)


def _entry(archive: Archive, opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> Entry:
    name, encoding, raw = _name(archive, info)
    return Entry(
        # `./a`, as some programs write the entries of the folder `.`, is a
        name=name.removesuffix("/").removeprefix("./"),
        is_folder=name.endswith("/"),
        refused=_refusal(info),
        open=partial(opened.open, info),
        chunk=_METHODS.get(info.compress_type, READ_CHUNK),
        name_encoding=encoding,
        raw_name=raw,
    )


def _name(archive: Archive, info: zipfile.ZipInfo) -> tuple[str, str, bytes]:
    """The name; if the entry does not say its encoding, also the encoding that was taken and the bytes.

    The encoding of the profile, else UTF-8 if the bytes are UTF-8, else the format's own code page 437.
    """
    name = info.orig_filename
    if info.flag_bits & _UTF8_NAME or name.isascii():
        return name, "", b""
    raw = name.encode("cp437")
    if archive.name_encoding:
        try:
            return raw.decode(archive.name_encoding), archive.name_encoding, raw
        except UnicodeError as error:
            raise content(
                f"{archive.title}: the name {quote_name(name)} is not {archive.name_encoding}, which the "
                "profile's zip_name_encoding says: pack it with names in UTF-8"
            ) from error
    with contextlib.suppress(UnicodeError):
        return raw.decode("utf-8"), "utf-8", raw
    return name, "cp437", raw


def _refusal(info: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return "is a symbolic link; pack the file itself"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is neither a file nor a folder"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted; pack it without a password"
    if info.compress_type not in _METHODS:
        return f"is compressed by zip method {info.compress_type}; pack it with deflate, the usual method"
    return None
