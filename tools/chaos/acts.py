"""The acts of operators in a run: what they explain to the checker, and what they made."""

from dataclasses import dataclass, field
from pathlib import Path

from tools.chaos.problem import Problem


@dataclass(frozen=True)
class Backup:
    """A backup; the folder is there if the backup is complete."""

    folder: Path
    completed: frozenset[str]
    """The jobs that were completed before the backup began."""


@dataclass(frozen=True)
class Exported:
    """An exported version; the folder is there if the bag is complete."""

    folder: Path
    ark: str
    number: int


@dataclass
class Acts:
    """Noted before each act: an act whose answer was lost has happened or not."""

    deleted_jobs: dict[str, str] = field(default_factory=dict)
    """Job -> the path of its object. A job that was deleted is absent, or as if it was not."""
    deleted_batches: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    """Batches whose jobs may have failed, be deleted if they were held, or never have been created."""
    backups: list[Backup] = field(default_factory=list)
    exports: list[Exported] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """Errors of acts that no fault explains, and false alarms."""
