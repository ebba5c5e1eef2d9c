"""Identifiers: ARKs minted here (NOID) or by a service."""

from typing import TYPE_CHECKING, Protocol

from pipeline.profile import Profile
from pipeline.records import Job

if TYPE_CHECKING:
    from pipeline.services import Ledger


class Minter(Protocol):
    def mint(self, job: Job, profile: Profile, ledger: "Ledger") -> str:
        """An ARK for the job, already written to its identifiers; the same one however often it is asked."""
