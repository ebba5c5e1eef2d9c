"""What a step works with: the clients of outside systems, and the attempt that the step is part of."""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.attempt import Attempt, JobRecord
from pipeline.decoding.decoder import Decoder
from pipeline.identifiers.minter import Minter
from pipeline.inventory.sql import SqlInventory
from pipeline.notify.callback import HttpCallback
from pipeline.notify.mail import Mailer
from pipeline.outcome import system
from pipeline.profiles.profile import Profile, ProfileError, Profiles
from pipeline.profiles.sources import Sources
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.limits import HostLimiter
from pipeline.storage.base import Storage


@dataclass(frozen=True)
class Clients:
    """Opened once per process, by `pipeline.steps.clients`."""

    settings: Settings
    profiles: Profiles
    fetcher: HttpFetcher
    minter: Minter
    storage: Storage
    inventory: SqlInventory
    callback: HttpCallback
    mailer: Mailer
    decoder: Decoder

    def step_context(
        self,
        job_record: JobRecord,
        attempt: Attempt,
        limiter: HostLimiter,
        profile_of: Callable[[], Profile],
    ) -> "StepContext":
        """The context of the steps of one attempt, whose fetcher keeps to the fleet's limits per host."""

        def sources() -> Sources:
            try:
                return profile_of().allowed_sources
            except ProfileError as error:
                raise system(str(error)) from error

        own = {"fetcher": self.fetcher.limited_by(limiter, sources)}
        return StepContext(**vars(self) | own, job_record=job_record, attempt=attempt, profile_of=profile_of)


@dataclass(frozen=True)
class StepContext(Clients):
    """The clients, and the attempt at a step that uses them."""

    job_record: JobRecord
    attempt: Attempt
    """Checked before every effect."""
    profile_of: Callable[[], Profile]
    """Reads the profile of the batch's snapshot; called when the profile is first needed."""

    @property
    def profile(self) -> Profile:
        """The profile that the job's batch started with; StepFailed(system) if it is missing or invalid."""
        try:
            return self.profile_of()
        except ProfileError as error:
            raise system(str(error)) from error
