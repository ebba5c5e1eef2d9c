"""The job's record as a step sees it while it works: a Protocol that zkstate implements."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from pipeline.outcome import Promised
from pipeline.records import Identifiers, Job


class JobRecord(Protocol):
    """The record of a job in progress; every write is fenced by the job's attempt."""

    def identifiers(self, job: Job) -> Identifiers:
        """The current identifiers."""

    def write_identifiers(self, job: Job, identifiers: Identifiers) -> None:
        """Replace the job's identifiers at once; AttemptOver if this attempt is no longer the owner."""

    def mint(self, job: Job, counter: str, spell: Callable[[int], str]) -> str:
        """Take the next number of `counter` and write the identifier `spell(number)`, atomically.

        A job that has a primary id keeps it: minting twice is impossible.
        """

    def exclusive(self, kind: str, name: str) -> AbstractContextManager[None]:
        """A lock on (kind, name) in the fleet; waits, StepFailed(transient) if that takes too long."""

    def fence(self, job: Job) -> None:
        """Read from the record whether this attempt still owns the job; AttemptOver if not.

        Called right before an effect that cannot be undone.
        """

    def collection_held(self, profile_name: str) -> bool:
        """True while the collection is on hold."""

    def promised(self) -> Promised:
        """Working storage promised to all jobs."""
