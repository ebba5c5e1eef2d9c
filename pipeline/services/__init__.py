"""What a step may use: one outside system per file, each a Protocol with its clients."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pipeline.outcome import Promised, system
from pipeline.profile import Profile, ProfileError
from pipeline.records import Identifiers, Job
from pipeline.services.callback import Callback
from pipeline.services.fetch import Fetcher
from pipeline.services.inventory import Inventory
from pipeline.services.mail import Mailer
from pipeline.services.minter import Minter
from pipeline.services.storage import Storage
from pipeline.settings import Settings


class Ledger(Protocol):
    """What a step may ask of the record while it works; every write is fenced by the job's attempt."""

    def identifiers(self, job: Job) -> Identifiers:
        """The identifiers as they stand now."""

    def write_identifiers(self, job: Job, identifiers: Identifiers) -> None:
        """Replace the job's identifiers at once; AttemptOver if this attempt is no longer the owner."""

    def mint(self, job: Job, counter: str, spell: Callable[[int], str]) -> str:
        """Take the next number of `counter` and write the identifier that `spell` makes of it, atomically.

        A job that has a primary id already keeps it: minting twice is impossible.
        """

    def exclusive(self, kind: str, name: str) -> AbstractContextManager[None]:
        """One holder of (kind, name) in the fleet; waits; StepFailed(transient) if that takes too long."""

    def fence(self, job: Job) -> None:
        """Ask the record itself whether this attempt still owns the job; AttemptOver if not.

        To be called right before an effect that cannot be undone.
        """

    def collection_held(self, profile_name: str) -> bool:
        """True while an operator holds this collection."""

    def promised(self) -> Promised:
        """Working storage promised to all jobs."""


@dataclass(frozen=True)
class Services:
    """Everything outside the job; made anew for each attempt."""

    settings: Settings
    profile_of: Callable[[], Profile]
    """The profile that the job's batch started with."""
    ledger: Ledger
    fetcher: Fetcher
    minter: Minter
    storage: Storage
    inventory: Inventory
    callback: Callback
    mailer: Mailer
    alive: Callable[[], None]
    """Raises AttemptOver once the lock is lost or the worker is to stop; call it before every effect."""

    @property
    def profile(self) -> Profile:
        """The profile that the job's batch started with; StepFailed(system) if it cannot be had."""
        try:
            return self.profile_of()
        except ProfileError as error:
            raise system(str(error)) from error
