"""The depositor's own system, told of each job by HTTP."""

from typing import Protocol

from pipeline.profile import Profile
from pipeline.records import Job


class Callback(Protocol):
    def tell(self, job: Job, profile: Profile, version: int | None) -> None:
        """POST the job's state to the profile's callback URL; nothing if the profile has none."""
