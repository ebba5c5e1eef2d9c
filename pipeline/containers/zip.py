"""zip containers."""

import contextlib
import io
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial

from pipeline.containers.base import Archive, Entry, from_here
from pipeline.fixity import READ_CHUNK
from pipeline.names import quote_name
from pipeline.outcome import content

_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08", b"PK00PK\x03\x04")

_METHODS = {zipfile.ZIP_STORED: READ_CHUNK, zipfile.ZIP_DEFLATED: READ_CHUNK, zipfile.ZIP_BZIP2: 4096}
"""Accepted methods -> bytes read at a time: zipfile unpacks bzip2 without a limit, and 4 KiB of bzip2 hold
80 MB at most. LZMA is refused because its header may claim 4 GiB of memory."""

_DIRECTORY_LIMIT = 64 << 20
"""Maximum bytes of a directory: 100,000 entries with names of 500 bytes. zipfile reads it in one piece."""

_ENCRYPTED = 0x1 | 0x40
_PATCH = 0x20
_UTF8_NAME = 0x800
_CENTRAL_ENTRY = b"PK\x01\x02"
_CENTRAL_LENGTH, _LOCAL_LENGTH, _END_LENGTH = 46, 30, 22
_LOCATOR = struct.Struct("<4sLQL")
"""The end locator of a zip64: signature, part with the end record, offset of the record, number of parts."""

_UNICODE_PATH = 0x7075
_GUESSED = "cp437"
"""The encoding assumed if none is declared or recognized; a backslash may then be half of a letter."""

_UNIX = (3, 19)
"""The systems whose attributes are those of Unix: Unix and Darwin (APPNOTE 4.4.2.2)."""

_DOS = (0, 10, 11, 14)
"""The systems of Windows: FAT, NTFS and VFAT, where a backslash in a name can only separate folders."""

_DOS_FOLDER = 0x10
_PART = re.compile(r"\.(z\d{2,}|\d{3,})$", re.IGNORECASE)
"""The end of a part's name: a.z01, a.z100, a.zip.001."""

_ZIP_PART = re.compile(r"\.z(ip\.\d{3,}|\d{2,})$", re.IGNORECASE)
"""The end of a name that only a part of a zip has: other formats have parts such as a.7z.001."""


class Zip:
    def recognizes(self, archive: Archive, head: bytes) -> bool:
        """Whether the file is a zip, even with a prefix such as the program of a self-extracting zip.

        A middle part of a divided zip is recognized by its name alone.
        """
        if head.startswith(_SIGNATURES) or _ZIP_PART.search(archive.name):
            return True
        return archive.name.lower().endswith(".zip") and zipfile.is_zipfile(archive.path)

    @contextlib.contextmanager
    def entries(self, archive: Archive) -> Iterator[Iterator[Entry]]:
        with _ZipFile(archive) as file:
            _check_whole(archive, file)
            with zipfile.ZipFile(file) as opened:
                file.opening = False
                yield map(partial(_entry, archive, file), opened.infolist())


def _check_whole(archive: Archive, file: io.FileIO) -> None:
    """Raise StepFailed(content) for one part of a divided zip."""
    is_part = _PART.search(archive.name) is not None
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _END_LENGTH - 0x1_0000 - _LOCATOR.size))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    locator = tail[max(0, at - _LOCATOR.size) : at] if at >= 0 else b""
    if len(locator) == _LOCATOR.size and locator.startswith(b"PK\x06\x07"):
        divided = _LOCATOR.unpack(locator)[3] > 1
    elif at >= 0 and len(tail) >= at + _END_LENGTH:
        part, length, offset = struct.unpack_from("<4xH6xLL", tail, at)
        before = size - len(tail) + at
        divided = part not in (0, 0xFFFF) or (length + offset > before and is_part)
    else:
        file.seek(0)
        divided = file.read(4) == b"PK\x07\x08" or is_part
        if not divided:
            raise zipfile.BadZipFile("it has no end, as the first part of a zip that was divided")
    if divided:
        raise content(
            f"{archive.title} is one part of a zip that was divided, and the other parts are missing: join "
            "them (zip -s 0 divided.zip --out whole.zip; parts named .001, .002 one after the other) and "
            "submit the whole zip"
        )


class _ZipFile(io.FileIO):
    """The archive's file; refuses to return a directory with too many entries.

    zipfile reads the whole directory and makes an object per entry before it returns the first.
    """

    def __init__(self, archive: Archive) -> None:
        super().__init__(archive.path)
        self._archive = archive
        self.opening = True
        """True until zipfile has read the directory; content is never changed."""

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
        return _with_whole_fields(data) if self.opening and data.startswith(_CENTRAL_ENTRY) else data

    def seek(self, position: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_SET and position < 0:
            raise zipfile.BadZipFile(
                "its directory points before its beginning, as in the last part of a zip that was divided"
            )
        return super().seek(position, whence)


def _with_whole_fields(directory: bytes) -> bytes:
    """Replace malformed extra fields in the directory by zeros: cameras and phones write such fields.

    The length stays the same, since zipfile locates entries by it; zeros are empty fields of kind 0.
    """
    result, at = bytearray(directory), 0
    while directory.startswith(_CENTRAL_ENTRY, at) and at + _CENTRAL_LENGTH <= len(directory):
        name, extra, comment = struct.unpack_from("<HHH", directory, at + 28)
        field = at + _CENTRAL_LENGTH + name
        end = at = min(field + extra, len(directory))
        at += comment
        while field + 4 <= end:
            kind, length = struct.unpack_from("<HH", directory, field)
            if field + 4 + length > end:
                result[field:end] = bytes(end - field)
            elif kind == _UNICODE_PATH and not _is_text(directory[field + 9 : field + 4 + length]):
                result[field : field + 2] = bytes(2)
            field += 4 + length
    return bytes(result)


def _is_text(data: bytes) -> bool:
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def _open(file: io.FileIO, info: zipfile.ZipInfo) -> io.BufferedIOBase:
    """Open the content; name, sizes and method are the directory's: old programs' local headers differ."""
    file.seek(info.header_offset)
    header = file.read(_LOCAL_LENGTH)
    if len(header) < _LOCAL_LENGTH or not header.startswith(b"PK\x03\x04"):
        raise zipfile.BadZipFile("an entry of its directory points to no file")
    file.seek(sum(struct.unpack_from("<HH", header, 26)), io.SEEK_CUR)
    return zipfile.ZipExtFile(file, "r", info)


def _is_folder(info: zipfile.ZipInfo, name: str) -> bool:
    if name.endswith("/"):
        return True
    if info.create_system in _UNIX:
        marked = stat.S_ISDIR(info.external_attr >> 16)
    else:
        marked = bool(info.external_attr & _DOS_FOLDER)
    return marked and not info.file_size


def _entry(archive: Archive, file: io.FileIO, info: zipfile.ZipInfo) -> Entry:
    name, encoding, raw = _name(archive, info)
    if info.create_system in _DOS and encoding != _GUESSED and "/" not in name:
        name = name.replace("\\", "/")  # .NET before 4.6.1 wrote backslashes
    is_folder = _is_folder(info, name)
    return Entry(
        name=from_here(name.removesuffix("/")),
        is_folder=is_folder,
        refused="is a folder with content" if is_folder and info.file_size else _refusal(info),
        open=partial(_open, file, info),
        chunk=_METHODS.get(info.compress_type, READ_CHUNK),
        name_encoding=encoding,
        raw_name=raw,
    )


def _name(archive: Archive, info: zipfile.ZipInfo) -> tuple[str, str, bytes]:
    """The name; if the entry does not declare its encoding, also the assumed encoding and the raw bytes.

    A Unicode Path field (APPNOTE 4.6.9) wins if it was made for this name; then the encoding of the
    profile; then UTF-8 if the bytes are valid UTF-8; then the format's own code page 437.
    """
    name = info.orig_filename
    if path := _unicode_path(info):
        return path, "", b""
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
    return name, _GUESSED, raw


def _unicode_path(info: zipfile.ZipInfo) -> str:
    packed = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8_NAME else "cp437")
    extra, at = info.extra, 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == _UNICODE_PATH and length > 5:
            version, crc = struct.unpack_from("<BL", extra, at + 4)
            if version == 1 and crc == zlib.crc32(packed):
                return extra[at + 9 : at + 4 + length].decode()
        at += 4 + length
    return ""


def _refusal(info: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return "is a symbolic link; pack the file itself"
    if info.create_system in _UNIX and kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is neither a file nor a folder"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted; pack it without a password"
    if info.flag_bits & _PATCH:
        return "is a patch of another file; pack the file itself"
    if info.compress_type not in _METHODS:
        return f"is compressed by zip method {info.compress_type}; pack it with deflate, the usual method"
    return None
