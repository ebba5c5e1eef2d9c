"""Copies of stored files, for checks that read them."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha512

from pipeline.attempt import Attempt
from pipeline.checks import CheckedFile
from pipeline.fixity import OnRead, ignore
from pipeline.names import PRODUCER
from pipeline.outcome import damaged
from pipeline.storage.base import OutgoingFile, Storage
from pipeline.working_storage.workspace import Workspace


@dataclass(frozen=True)
class StoredFiles:
    """The files of a version as storage hands them out: ordered by path, one at a time."""

    name: str
    """The version, in messages."""
    outgoing: Iterator[OutgoingFile]

    @classmethod
    def of(cls, storage: Storage, ark: str, url: str, number: int) -> "StoredFiles":
        return cls(f"version {number} of {ark}", storage.read_out(ark, url, number))

    def copy(
        self, file: CheckedFile, workspace: Workspace, attempt: Attempt, on_read: OnRead = ignore
    ) -> None:
        """Copy a deposited file to `file.source`; files must be copied in the order of their paths.

        DamagedObject unless storage has it with the size and the digest of `file`.
        """
        stored = next((one for one in self.outgoing if one.path == f"{PRODUCER}{file.path}"), None)
        if stored is None:
            raise damaged(f"{file.path} of {self.name} is not in storage")
        workspace.make_folder(file.source.parent)
        digest, size = sha512(), 0
        with file.source.open("wb") as copy:
            for piece in stored.pieces:
                attempt.check()
                size += len(piece)
                if size > file.size:
                    break
                digest.update(piece)
                copy.write(piece)
                on_read(len(piece))
        if (size, digest.hexdigest()) != (file.size, file.sha512):
            raise damaged(
                f"{file.path} of {self.name} is not as it was stored: check the fixity of the object"
            )
