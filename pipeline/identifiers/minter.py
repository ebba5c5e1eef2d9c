"""Identifiers: ARKs minted here (NOID), which a service may make known to the world."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pipeline.description import anvl
from pipeline.identifiers import noid
from pipeline.job_record import JobRecord
from pipeline.profiles.profile import Profile
from pipeline.records import Job

Claim = Callable[[str], None]


def nothing(ark: str) -> None:
    """The claim of a name that nobody else can want."""


@dataclass(frozen=True)
class Chosen:
    """Of an ARK that arkline chose: the job that is to be stored under it, and whether it is the first."""

    job: Job
    is_first: Callable[[], bool] = lambda: True


class Minter(Protocol):
    def mint(self, job: Job, profile: Profile, job_record: JobRecord, claim: Claim = nothing) -> str:
        """An ARK for the job, already written to its identifiers; the same one however often it is asked.

        `claim(ark)` is done between that and whatever the world is told of it.
        """

    def announce(self, ark: str, profile: Profile, erc: anvl.Pairs, chosen: Chosen | None = None) -> None:
        """Tell who resolves the ARK what it names now; again is the same as once.

        `chosen`: to be given if arkline chose the ARK, which is then made known if it is not yet. Any other
        that is not known is left alone.
        """


class LocalMinter:
    """Numbers from the record's own counter, one per shoulder, spelled as NOIDs."""

    def mint(self, job: Job, profile: Profile, job_record: JobRecord, claim: Claim = nothing) -> str:
        counter = f"{profile.naan}_{profile.shoulder}"
        ark = job_record.mint(job, counter, partial(noid.spell, profile.naan, profile.shoulder))
        claim(ark)
        return ark

    def announce(self, ark: str, profile: Profile, erc: anvl.Pairs, chosen: Chosen | None = None) -> None:
        """Nobody resolves these ARKs but the inventory, which is told by recording."""
