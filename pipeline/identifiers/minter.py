"""Minting of ARKs (NOIDs), which a service may register and publish."""

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


def no_claim(ark: str) -> None:
    """The claim of an ARK that needs none."""


@dataclass(frozen=True)
class Assignment:
    """An ARK that arkline assigned: the job to be stored under it, and whether it is the first such job."""

    job: Job
    is_first: Callable[[], bool] = lambda: True


class Minter(Protocol):
    def mint(self, job: Job, profile: Profile, job_record: JobRecord, claim: Claim = no_claim) -> str:
        """An ARK for the job, written to the job's identifiers; repeated calls return the same ARK.

        `claim(ark)` runs after the ARK is saved and before it is registered.
        """

    def announce(
        self, ark: str, profile: Profile, erc: anvl.Pairs, assigned: Assignment | None = None
    ) -> None:
        """Publish the ARK with the metadata of its object; idempotent.

        `assigned`: required if arkline assigned the ARK; the ARK is then registered if it is not yet. An ARK
        that the depositor gave is never registered.
        """


class LocalMinter:
    """Numbers from a counter in the record, one per shoulder, spelled as NOIDs."""

    def mint(self, job: Job, profile: Profile, job_record: JobRecord, claim: Claim = no_claim) -> str:
        counter = f"{profile.naan}_{profile.shoulder}"
        ark = job_record.mint(job, counter, partial(noid.spell, profile.naan, profile.shoulder))
        claim(ark)
        return ark

    def announce(
        self, ark: str, profile: Profile, erc: anvl.Pairs, assigned: Assignment | None = None
    ) -> None:
        """Nothing to do: only the inventory resolves these ARKs, and recording writes to it."""
