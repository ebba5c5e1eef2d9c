"""What a report says of a job, as far as the record has it."""

from dataclasses import dataclass

from pipeline.records import HistoryEntry, Identifiers, JobConfiguration, JobStatus


@dataclass(frozen=True)
class JobOutcome:
    jid: str
    configuration: JobConfiguration
    identifiers: Identifiers
    status: JobStatus
    history: tuple[HistoryEntry, ...] = ()
    """Of a failed job; a report says nothing of the history of others."""
