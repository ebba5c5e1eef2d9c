"""The minter that a profile chooses, or the settings if it does not."""

from pipeline.description import anvl
from pipeline.identifiers.ezid import EzidMinter
from pipeline.identifiers.minter import Chosen, Claim, LocalMinter, Minter, nothing
from pipeline.job_record import JobRecord
from pipeline.outcome import system
from pipeline.profiles.profile import MinterName, Profile
from pipeline.records import Job
from pipeline.settings import Settings


class ChosenMinter:
    def __init__(self, settings: Settings) -> None:
        self._local = LocalMinter()
        self._ezid = EzidMinter(settings) if settings.ezid_url else None

    def mint(self, job: Job, profile: Profile, job_record: JobRecord, claim: Claim = nothing) -> str:
        return self.of(profile).mint(job, profile, job_record, claim)

    def announce(self, ark: str, profile: Profile, erc: anvl.Pairs, chosen: Chosen | None = None) -> None:
        self.of(profile).announce(ark, profile, erc, chosen)

    def of(self, profile: Profile) -> Minter:
        if profile.minter is MinterName.LOCAL or (profile.minter is None and self._ezid is None):
            return self._local
        if self._ezid is None:
            raise system(
                f"profile {profile.name} mints at EZID, but ARKLINE_EZID_URL is not set: set it for the "
                "workers, or choose minter: local"
            )
        return self._ezid
