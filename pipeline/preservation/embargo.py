"""Reads the embargo of an object from its current version, for the inventory."""

from pipeline.description.metadata import MAX_FILE_BYTES, embargo_end
from pipeline.inventory import embargoes
from pipeline.inventory.embargoes import UnreadEmbargo
from pipeline.inventory.sql import SqlInventory
from pipeline.outcome import StepFailed, damaged
from pipeline.states import FailureKind
from pipeline.storage.base import Storage


def read_embargo(inventory: SqlInventory, storage: Storage, of: UnreadEmbargo) -> None:
    """Enter the embargo, or that its file is no embargo that can be read.

    StepFailed if storage cannot deliver the file, which is then read another time.
    """
    try:
        end, readable = embargo_end(_file(storage, of)), True
    except StepFailed as failure:
        if failure.kind is not FailureKind.CONTENT:
            raise
        end, readable = None, False
    inventory.enter_embargo(of.ark, of.version, end, readable=readable)


def _file(storage: Storage, of: UnreadEmbargo) -> bytes:
    """Empty, which is no embargo, if the file is too large for one."""
    if of.size > MAX_FILE_BYTES:
        return b""
    data = storage.read(of.ark, embargoes.PATH, of.version, url=of.storage_url)
    if data is None:
        raise damaged(f"storage has no {embargoes.PATH} in version {of.version} of {of.ark}")
    return data
