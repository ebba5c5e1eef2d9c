"""The context of a step: the outside systems, as Protocols, and the attempt that the step is part of."""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.attempt import Attempt
from pipeline.identifiers.minter import Minter
from pipeline.inventory.base import Inventory
from pipeline.job_record import JobRecord
from pipeline.notify.callback import Callback
from pipeline.notify.mail import Mailer
from pipeline.outcome import system
from pipeline.profiles.profile import Profile, ProfileError
from pipeline.settings import Settings
from pipeline.sources.fetch import Fetcher
from pipeline.storage.base import Storage


@dataclass(frozen=True)
class StepContext:
    """Everything outside the job; created for every attempt."""

    settings: Settings
    profile_of: Callable[[], Profile]
    """Reads the profile of the batch's snapshot; called when the profile is first needed."""
    job_record: JobRecord
    fetcher: Fetcher
    minter: Minter
    storage: Storage
    inventory: Inventory
    callback: Callback
    mailer: Mailer
    attempt: Attempt
    """Checked before every effect."""

    @property
    def profile(self) -> Profile:
        """The profile that the job's batch started with; StepFailed(system) if it is missing or invalid."""
        try:
            return self.profile_of()
        except ProfileError as error:
            raise system(str(error)) from error
