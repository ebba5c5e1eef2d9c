"""Asks a worker for a proof: a fixity check of one version, whose result the inventory keeps."""

import secrets

from pipeline.inventory import fixity
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.fixity import AskedProof
from pipeline.inventory.sql import SqlInventory
from pipeline.preservation.custody import size_of
from pipeline.records import now
from pipeline.settings import Settings
from tasks.scheduled.fixity import WORK, request_run

OWN_PROOFS = "arkline"
"""The requester of a proof after a reader found damage; no limit refuses this request."""


def ask_after_damage(
    settings: Settings, inventory: SqlInventory, known: InventoryObject, number: int
) -> None:
    """Have a worker check an object in which a reader found damage; the check enters and reports it."""
    ask(settings, inventory, known, number, OWN_PROOFS)


def ask(
    settings: Settings, inventory: SqlInventory, known: InventoryObject, number: int, asked_by: str
) -> AskedProof:
    """Request a proof, which a worker makes; an unfinished one of this version is returned instead.

    `too-many-proofs` if the requester is at a limit.
    """
    every = {version.number for version in known.versions}  # like every fixity check
    facts = {"id": secrets.token_hex(8), "asked": now(), "bytes_total": size_of(known, every), "message": ""}
    limited = asked_by != OWN_PROOFS
    proof = fixity.ask_proof(inventory, known.ark, number, asked_by, facts, limited=limited)
    request_run(settings, WORK)
    return proof
