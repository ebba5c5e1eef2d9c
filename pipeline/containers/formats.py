"""The container formats that are read.

To add one: a file with a Format beside this one, its place in FORMATS, its suffix in CONTAINER_SUFFIXES.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager

from pipeline.containers.base import Archive, Entry, Format
from pipeline.containers.tar import BLOCK, TAR_BZ2, TAR_GZ, Tar
from pipeline.containers.zip import Zip
from pipeline.names import CONTAINER_SUFFIXES, quote_name
from pipeline.outcome import StepFailed, content

FORMATS: tuple[Format, ...] = (Tar(), TAR_GZ, TAR_BZ2, Zip())
"""In the order in which they are tried; the content decides, not the name."""

_OTHER_FORMATS = {
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"\xfd7zXZ\x00": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard",
}


def entries(archive: Archive) -> AbstractContextManager[Iterator[Entry]]:
    """The archive's entries; a content failure if it is of no known format."""
    with archive.path.open("rb") as file:
        head = file.read(BLOCK)
    for known in FORMATS:
        if known.recognizes(archive, head):
            return known.entries(archive)
    raise _unknown(head, archive.name)


def _unknown(head: bytes, name: str) -> StepFailed:
    names = (format_name for magic, format_name in _OTHER_FORMATS.items() if head.startswith(magic))
    return content(
        f"container {quote_name(name)} is {next(names, 'not a known archive')}: pack it as "
        f"{' '.join(CONTAINER_SUFFIXES)}, or submit it as type file to store it unchanged"
    )
