"""Proofs of custody: fixity checks that a caller asks for now.

A worker reads the bytes, and the inventory has the result. The caller checks before that the principal may
see the object. Any version of any size can be proved, as nobody waits for the answer.
"""

import secrets
from datetime import datetime
from enum import StrEnum

from pydantic import Field, TypeAdapter

from operations.objects import versions_to_prove
from operations.site import Site
from pipeline.inventory import proofs
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.proofs import AskedProof
from pipeline.inventory.sql import SqlInventory
from pipeline.preservation.custody import Custody
from pipeline.preservation.proof import size_of
from pipeline.records import Record, now
from tasks.proofs import request_run
from zkstate.errors import Missing


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


_CUSTODY = TypeAdapter(Custody)


def start(site: Site, known: InventoryObject, version: int | None, asked_by: str) -> CustodyProof:
    """A new proof of the version (None: the current one), or the one that has not ended yet.

    UsageRefused if there is no such version; TooManyProofs.
    """
    (number,) = versions_to_prove(known, version, every=False)
    every = {version.number for version in known.versions}  # as each fixity check
    facts = {"id": secrets.token_hex(8), "asked": now(), "bytes_total": size_of(known, every), "message": ""}
    proof = proofs.ask(site.inventory(), known.ark, number, asked_by, facts)
    request_run(site.settings)
    return _shown(proof)


def get(inventory: SqlInventory, proof_id: str, known: InventoryObject) -> CustodyProof:
    """Missing if there is no such proof of this object, any more or at all."""
    proof = proofs.find(inventory, proof_id)
    if proof is None or proof.ark != known.ark:
        raise Missing(
            f"there is no proof {proof_id} of {known.ark}, of which the last of each version is kept: "
            "start a new one"
        )
    return _shown(proof)


def latest(inventory: SqlInventory, known: InventoryObject, number: int) -> CustodyProof | None:
    """The last proof of the version that was asked for."""
    proof = proofs.latest(inventory, known.ark, number)
    return None if proof is None else _shown(proof)


def _shown(proof: AskedProof) -> CustodyProof:
    custody = None if proof.custody is None else _CUSTODY.validate_json(proof.custody)
    return CustodyProof(
        id=proof.id,
        ark=proof.ark,
        version=proof.version,
        state=_state(proof),
        asked=proof.asked,
        began=proof.began,
        ended=proof.ended,
        bytes_read=proof.bytes_read,
        bytes_total=proof.bytes_total,
        ahead=proof.ahead,
        message=proof.message,
        custody=custody,
    )


def _state(proof: AskedProof) -> ProofState:
    if proof.ended is not None:
        return ProofState.FAILED if proof.message and proof.custody is None else ProofState.DONE
    return ProofState.WAITING if proof.began is None else ProofState.RUNNING
