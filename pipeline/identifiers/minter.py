"""Minting of ARKs (NOIDs), which a service may register and publish."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pipeline.attempt import UNATTENDED, JobRecord
from pipeline.description import anvl
from pipeline.identifiers import noid
from pipeline.profiles.profile import Profile
from pipeline.records import Identifiers, Job

Claim = Callable[[str], None]

Known = Callable[[Sequence[str]], Collection[str]]
"""Those of the ARKs that are taken, whatever the counter says."""

MOST_AT_A_TIME = 500
"""ARKs that are looked up at a time, once the counter turns out to be behind."""


def no_claim(ark: str) -> None:
    """The claim of an ARK that needs none."""


LastCheck = Callable[[], None]
"""Raises AttemptOver if the attempt is no longer the owner of its job."""


def none_known(arks: Sequence[str]) -> Collection[str]:
    """For a counter that is the only memory of what was minted."""
    del arks
    return ()


@dataclass(frozen=True)
class Assignment:
    """An ARK that arkline assigned: the job to be stored under it, and whether it is the first such job."""

    job: Job
    is_first: Callable[[], bool]


class Minter(Protocol):
    def mint(
        self,
        job: Job,
        profile: Profile,
        job_record: JobRecord,
        claim: Claim = no_claim,
        known: Known = none_known,
        identifiers: Identifiers | None = None,
    ) -> str:
        """An ARK for the job, written to the job's identifiers; repeated calls return the same ARK.

        `identifiers`: see `JobRecord.mint`. Names that are `known` are skipped. `claim(ark)` runs after the
        ARK is saved and before it is registered.
        """

    def announce(
        self,
        ark: str,
        profile: Profile,
        erc: anvl.Pairs,
        assigned: Assignment | None = None,
        last_check: LastCheck = UNATTENDED.check,
    ) -> None:
        """Publish the ARK with the metadata of its object; idempotent.

        `assigned`: required if arkline assigned the ARK; the ARK is then registered if it is not yet. An ARK
        that the depositor gave is never registered. `last_check` runs right before anything is published.
        """


class LocalMinter:
    """Numbers from a counter in the record, one per shoulder, spelled as NOIDs."""

    def mint(
        self,
        job: Job,
        profile: Profile,
        job_record: JobRecord,
        claim: Claim = no_claim,
        known: Known = none_known,
        identifiers: Identifiers | None = None,
    ) -> str:
        counter = f"{profile.naan}_{profile.shoulder}"
        spell = partial(noid.spell, profile.naan, profile.shoulder)
        ark = job_record.mint(job, counter, partial(_name_after, spell, known), identifiers)
        claim(ark)
        return ark

    def announce(
        self,
        ark: str,
        profile: Profile,
        erc: anvl.Pairs,
        assigned: Assignment | None = None,
        last_check: LastCheck = UNATTENDED.check,
    ) -> None:
        """Nothing to do: only the inventory resolves these ARKs, and recording writes to it."""


def _name_after(spell: Callable[[int], str], known: Known, last: int) -> tuple[int, str]:
    """The first number after `last` whose name is free, and the name."""
    first, window = last + 1, 1
    while True:
        names = {number: spell(number) for number in range(first, first + window)}
        taken = known(tuple(names.values()))
        for number, name in names.items():
            if name not in taken:
                return number, name
        first, window = first + window, min(window * 2, MOST_AT_A_TIME)
