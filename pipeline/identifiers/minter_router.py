"""Routes minting to the minter that the profile names, or to the default of the settings."""

from pipeline.attempt import UNATTENDED, JobRecord
from pipeline.description import anvl
from pipeline.identifiers.ezid import EzidMinter
from pipeline.identifiers.minter import (
    Assignment,
    Claim,
    Known,
    LastCheck,
    LocalMinter,
    Minter,
    no_claim,
    none_known,
)
from pipeline.outcome import system
from pipeline.profiles.profile import MinterName, Profile
from pipeline.records import Identifiers, Job
from pipeline.settings import Settings


class MinterRouter:
    def __init__(self, settings: Settings) -> None:
        self._local = LocalMinter()
        self._ezid = EzidMinter(settings) if settings.ezid_url else None

    def mint(
        self,
        job: Job,
        profile: Profile,
        job_record: JobRecord,
        claim: Claim = no_claim,
        known: Known = none_known,
        identifiers: Identifiers | None = None,
    ) -> str:
        return self.minter_for(profile).mint(job, profile, job_record, claim, known, identifiers)

    def announce(
        self,
        ark: str,
        profile: Profile,
        erc: anvl.Pairs,
        assigned: Assignment | None = None,
        last_check: LastCheck = UNATTENDED.check,
    ) -> None:
        self.minter_for(profile).announce(ark, profile, erc, assigned, last_check)

    def minter_for(self, profile: Profile) -> Minter:
        if profile.minter is MinterName.LOCAL or (profile.minter is None and self._ezid is None):
            return self._local
        if self._ezid is None:
            raise system(
                f"profile {profile.name} has minter: ezid, but ARKLINE_EZID_URL is not set: set it for the "
                "workers, or change the profile to minter: local"
            )
        return self._ezid
