"""The storage manifest `mrt-manifest.txt`: all files of a version, in Checkm.

Columns are read by position. `%20` is a leading or trailing blank, `%7c` a bar; Checkm cannot express a
literal `%20`, so a name that contains one reads back changed. The inventory in storage is exact.
"""

import mimetypes
import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote_from_bytes

from pipeline.fixity import ContentFile, StoredFile
from pipeline.manifests.checkm_row import encoded

PROFILE = "http://uc3.cdlib.org/registry/store/manifest/mrt-add-manifest"
NAME = "mrt-manifest.txt"

_HEAD = (
    "#%checkm_0.7",
    f"#%profile | {PROFILE}",
    "#%prefix | mrt: | http://merritt.cdlib.org/terms#",
    "#%prefix | nfo: | http://www.semanticdesktop.org/ontologies/2007/03/22/nfo#",
    "#%fields | nfo:fileUrl | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileLastModified"
    " | nfo:fileName | mrt:mimeType",
)
_ROW = re.compile(r" \| sha512 \| ([0-9a-f]+) \| (\d+) \|  \| ([^|]*) \| ")
"""Digest, size and path of a row; a path contains no bar."""
# Only Python's built-in types: with their hosts' lists, two workers could disagree.
_TYPES = mimetypes.MimeTypes(filenames=())


@lru_cache(maxsize=256)  # our own files have the same names in every object, and are looked up twice
def mime_type(path: str) -> str:
    """The MIME type by file name, the same on every host; compressed files have the compression's type."""
    # Without folders and after "./", no name is mistaken for a URL.
    kind, packed = _TYPES.guess_type(f"./{path.rpartition('/')[2]}")
    return f"application/{packed}" if packed else kind or "application/octet-stream"


def _file_url(path: Path) -> str:
    folder, slash, name = str(path).rpartition("/")
    return f"{_folder_url(folder or slash)}/{quote_from_bytes(os.fsencode(name))}"


@lru_cache(maxsize=4)
def _folder_url(folder: str) -> str:
    return Path(folder).absolute().as_uri().removesuffix("/")  # the root folder's URL ends with a slash


def write(files: Iterable[ContentFile], url: Callable[[Path], str] = _file_url) -> bytes:
    """The manifest of `files`, sorted by path; without the modification dates of our working copies."""
    rows = [
        f"{url(file.source)} | sha512 | {file.sha512} | {file.size} |  | {encoded(file.path)}"
        f" | {file.mime_type or mime_type(file.path)}"
        for file in sorted(files, key=lambda file: file.path)
    ]
    return "\n".join([*_HEAD, *rows, "#%eof", ""]).encode()


def unlike(manifest: bytes, stored: Iterable[StoredFile]) -> str:
    """The first file in a manifest by `write` that is not stored as listed; "" if all are."""
    there = {(file.sha512, str(file.size), encoded(file.path)) for file in stored}
    rows = (match.groups() for match in _ROW.finditer(manifest.decode()))
    return next((path for sha512, size, path in rows if (sha512, size, path) not in there), "")
