"""What a step may ask of the job's record while it works: a Protocol, which zkstate implements."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from pipeline.outcome import Promised
from pipeline.records import Identifiers, Job


class JobRecord(Protocol):
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
