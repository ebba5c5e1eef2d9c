"""Files of stored versions, read from storage to be given to people.

Rule: the last bytes of a file leave this module once its digest is that of the record.
"""

from collections.abc import Iterable, Iterator

from pipeline.fixity import Digester
from pipeline.inventory.base import InventoryFile, InventoryVersion
from pipeline.names import quote_name
from pipeline.outcome import DamagedObject, damaged
from pipeline.storage.base import OutgoingFile, Storage

_WRONG_BYTES = ("damaged in storage", "restore it from a copy of the storage")
_WRONG_ROW = (
    "in storage as it was downloaded, but the inventory was changed",
    "restore this row of inv_files from a copy of the inventory",
)
"""What is wrong if the bytes are not those of the record, and what to do."""


def files_of(
    ark: str, version: InventoryVersion, storage: Storage
) -> Iterator[tuple[InventoryFile, OutgoingFile]]:
    """Every file of the version; DamagedObject if storage lists others, and errors as `Storage.read_out`."""
    recorded = {file.path: file for file in version.files}
    for outgoing in storage.read_out(ark, version.storage_url, version.number):
        file = recorded.pop(outgoing.path, None)
        if file is None:
            raise damaged(
                f"storage has {quote_name(outgoing.path)} in version {version.number} of {ark}, but the "
                "inventory does not"
            )
        yield file, outgoing
    for path in recorded:
        raise lost(ark, version, path)


def lost(ark: str, version: InventoryVersion, path: str) -> DamagedObject:
    return damaged(f"storage has no {quote_name(path)} in version {version.number} of {ark}")


def read(
    ark: str, file: InventoryFile, outgoing: OutgoingFile, start: int, length: int | None = None
) -> Iterator[bytes]:
    """`length` bytes from the offset `start`, by default all that follow.

    The whole file is compared as in `verified`, and a part is read as in `part_of`.
    """
    length = file.size - start if length is None else length
    if length == file.size:
        return verified(ark, file, outgoing.pieces)
    return part_of(ark, file, outgoing.read(start), length)


def verified(ark: str, file: InventoryFile, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes, of which the last are held back until size and digest agree with the record.

    DamagedObject instead of them if not.
    """
    algorithm, _, recorded = file.digest.partition(":")
    digester, held = Digester((algorithm,)), b""
    for piece in pieces:
        digester.update(piece)
        if held and digester.size <= file.size:
            yield held
        held = piece
    actual = (digester.size, digester.value(algorithm))
    if actual != (file.size, recorded):
        is_stored = actual[1] in (recorded, file.provenance.sha512 if file.provenance else "")
        state, remedy = _WRONG_ROW if is_stored else _WRONG_BYTES
        raise damaged(
            f"{quote_name(file.path)} of {ark} is {state}: it has {actual[0]:,} bytes with the "
            f"{algorithm} {actual[1]}, not {file.size:,} bytes with {recorded}; {remedy}"
        )
    if held:
        yield held


def part_of(ark: str, file: InventoryFile, pieces: Iterable[bytes], length: int) -> Iterator[bytes]:
    """The first `length` of the bytes, which no digest confirms; DamagedObject if there are fewer."""
    for piece in pieces:
        yield piece[:length]
        length -= min(length, len(piece))
        if not length:
            return
    if length:
        raise damaged(f"{quote_name(file.path)} of {ark} is shorter in storage than when it was stored")
