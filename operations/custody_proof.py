"""A proof of custody as its caller sees it, whichever process reads the bytes."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from pipeline.preservation.custody import Custody
from pipeline.records import Record


class ProofState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class CustodyProof(Record):
    """The proof of a version of an object, which was asked for, is being read, or has ended."""

    id: str
    ark: str
    version: int
    state: ProofState = ProofState.WAITING
    asked: datetime
    began: datetime | None = None
    ended: datetime | None = None
    bytes_read: int = 0
    bytes_total: int = Field(description="Bytes that are to be read.")
    ahead: int = Field(0, description="Proofs that wait before this one.")
    message: str = Field("", description="Why the proof failed: storage could not be read.")
    custody: Custody | None = Field(None, description="The result: `agrees` if nothing differs.")
