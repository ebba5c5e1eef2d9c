"""A bag that arrives as a tar archive: written into a folder, and compared with its own manifests.

Rule: the archive is another machine's. No entry is written outside of the folder, which gets its name once
every file has the digest of its manifest.
"""

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from pipeline.file_system import sync_tree
from pipeline.fixity import READ_CHUNK, Digester, OnRead, ignore
from pipeline.names import UnsafeName, safe_name
from pipeline.outcome import damaged
from pipeline.preservation.export import (
    DECLARATION,
    MANIFEST,
    PAYLOAD,
    TAG_MANIFEST,
    drafted,
    listed,
    write_part,
)


def receive_bag(pieces: Iterable[bytes], folder: Path, on_read: OnRead = ignore) -> tuple[int, int]:
    """Write the bag into the new folder `folder`; returns the files of its payload, and their bytes.

    DamagedObject if the archive ends early or differs from its manifests; UsageRefused if the folder exists
    or cannot be written. Then nothing has the folder's name.
    """
    with drafted(folder) as draft:
        arrived = dict[str, Digester]()
        try:
            with tarfile.open(fileobj=_Stream(pieces), mode="r|") as archive:
                for entry in archive:
                    path, content = _path(entry), archive.extractfile(entry)
                    assert content is not None, "the entry is a file"
                    arrived[path] = Digester()
                    write_part(draft / path, _read(content, arrived[path]), on_read)
        except tarfile.TarError as error:
            raise damaged(f"the bag did not arrive whole: {error}") from error
        if not {DECLARATION, MANIFEST, TAG_MANIFEST} <= arrived.keys():
            raise damaged("what arrived is no bag: it has no declaration or no manifests")
        declared = {**dict(listed(draft / MANIFEST)), **dict(listed(draft / TAG_MANIFEST))}
        digests = {path: one.value() for path, one in arrived.items() if path != TAG_MANIFEST}
        for path in sorted(digests.keys() | declared.keys()):
            if digests.get(path) != declared.get(path):
                raise damaged(f"{path} of the bag is not as its manifest says: nothing was kept, try again")
        sync_tree(draft)
    payload = [one.size for path, one in arrived.items() if path.startswith(f"{PAYLOAD}/")]
    return len(payload), sum(payload)


class _Stream(io.RawIOBase):
    """The pieces as a file that is read once."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, or fewer at the end."""
        parts = [self._rest]
        missing = size - len(self._rest)
        while missing > 0 and (piece := next(self._pieces, b"")):
            parts.append(piece)
            missing -= len(piece)
        data = b"".join(parts)
        self._rest = data[size:]
        return data[:size]


def _path(entry: tarfile.TarInfo) -> str:
    """The path in the bag, whose folder comes first in the archive's names."""
    path = entry.name.partition("/")[2]
    try:
        if entry.isreg():
            return safe_name(path, stored=True)
    except UnsafeName:
        pass
    raise damaged(f"the archive has {entry.name!r}, which is no file of a bag: nothing was kept")


def _read(content: IO[bytes], digester: Digester) -> Iterator[bytes]:
    while piece := content.read(READ_CHUNK):
        digester.update(piece)
        yield piece
