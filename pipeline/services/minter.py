"""Identifiers: ARKs minted here (NOID) or by a service."""

from functools import partial
from typing import TYPE_CHECKING, Protocol

from pipeline import noid
from pipeline.profile import Profile
from pipeline.records import Job

if TYPE_CHECKING:
    from pipeline.services import Ledger


class Minter(Protocol):
    def mint(self, job: Job, profile: Profile, ledger: "Ledger") -> str:
        """An ARK for the job, already written to its identifiers; the same one however often it is asked."""


class LocalMinter:
    """Numbers from the record's own counter, one per shoulder, spelled as NOIDs."""

    def mint(self, job: Job, profile: Profile, ledger: "Ledger") -> str:
        counter = f"{profile.naan}_{profile.shoulder}"
        return ledger.mint(job, counter, partial(noid.spell, profile.naan, profile.shoulder))
