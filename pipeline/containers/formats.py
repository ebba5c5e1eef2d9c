"""The container formats that are read.

To add one: a file with a Format beside this one, its place in FORMATS, its suffix in CONTAINER_SUFFIXES.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager

from pipeline.containers.base import Archive, Entry, Format
from pipeline.containers.tar import BLOCK, TAR, TAR_BZ2, TAR_GZ
from pipeline.containers.zip import Zip
from pipeline.names import CONTAINER_SUFFIXES
from pipeline.outcome import content
from pipeline.web_pages import EXAMINED, HTML, SIGN_IN, is_web_page

FORMATS: tuple[Format, ...] = (TAR, TAR_GZ, TAR_BZ2, Zip())
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
        head = file.read(max(BLOCK, EXAMINED))
    for known in FORMATS:
        if known.recognizes(archive, head[:BLOCK]):
            return known.entries(archive)
    if is_web_page(head, HTML):  # no archive begins as markup
        raise content(
            f"{archive.title} is a web page, not an archive: {SIGN_IN}; give the address that downloads the "
            "archive itself, without a login"
        )
    others = (other for magic, other in _OTHER_FORMATS.items() if head.startswith(magic))
    raise content(
        f"{archive.title} is {next(others, 'not a known archive')}: pack it as "
        f"{' '.join(CONTAINER_SUFFIXES)}, or submit it as type file to store it unchanged"
    )
