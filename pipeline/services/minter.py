"""Identifiers: ARKs minted here (NOID), which a service may make known to the world."""

from functools import partial
from typing import TYPE_CHECKING, Protocol

from pipeline import noid
from pipeline.formats import anvl
from pipeline.profile import Profile
from pipeline.records import Job

if TYPE_CHECKING:
    from pipeline.services import Ledger


class Minter(Protocol):
    def mint(self, job: Job, profile: Profile, ledger: "Ledger") -> str:
        """An ARK for the job, already written to its identifiers; the same one however often it is asked."""

    def announce(self, ark: str, profile: Profile, erc: anvl.Pairs) -> None:
        """Tell who resolves the ARK what it names now; again is the same as once.

        An ARK that was not minted here is left alone.
        """


class LocalMinter:
    """Numbers from the record's own counter, one per shoulder, spelled as NOIDs."""

    def mint(self, job: Job, profile: Profile, ledger: "Ledger") -> str:
        counter = f"{profile.naan}_{profile.shoulder}"
        return ledger.mint(job, counter, partial(noid.spell, profile.naan, profile.shoulder))

    def announce(self, ark: str, profile: Profile, erc: anvl.Pairs) -> None:
        """Nobody resolves these ARKs but the inventory, which is told by recording."""
