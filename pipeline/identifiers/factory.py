"""Opening of the minter that settings and profiles choose: a plugin's, EZID's, or the local one."""

from collections.abc import Callable
from typing import TypeAlias

from pipeline import plugins
from pipeline.attempt import UNATTENDED, JobRecord
from pipeline.description import anvl
from pipeline.identifiers.ezid import EzidMinter
from pipeline.identifiers.minter import (
    Assignment,
    Claim,
    Known,
    LastCheck,
    Minter,
    no_claim,
    none_known,
)
from pipeline.profiles.profile import Profile
from pipeline.records import Identifiers, Job
from pipeline.settings import Settings

MinterOpener: TypeAlias = Callable[[Settings], Minter]
"""The type of the plugins in the group `arkline.minter`."""


def open_minter(settings: Settings) -> Minter:
    opener: MinterOpener | None = plugins.chosen(plugins.MINTER)
    ours = EzidMinter(settings)
    return _ByProfile(opener(settings), ours) if opener else ours


class _ByProfile(Minter):
    """A plugin's minter for the profiles that name none, and ours for those that do."""

    def __init__(self, sites: Minter, ours: Minter) -> None:
        self._sites = sites
        self._ours = ours

    def _of(self, profile: Profile) -> Minter:
        return self._sites if profile.minter is None else self._ours

    def uses_service(self, profile: Profile) -> bool:
        return self._of(profile).uses_service(profile)

    def mint(
        self,
        job: Job,
        profile: Profile,
        job_record: JobRecord,
        claim: Claim = no_claim,
        known: Known = none_known,
        identifiers: Identifiers | None = None,
    ) -> str:
        return self._of(profile).mint(job, profile, job_record, claim, known, identifiers)

    def announce(
        self,
        ark: str,
        profile: Profile,
        erc: anvl.Pairs,
        assigned: Assignment | None = None,
        last_check: LastCheck = UNATTENDED.check,
    ) -> None:
        self._of(profile).announce(ark, profile, erc, assigned, last_check)
