"""The acts of operators in a run: what they explain to the checker, and what they created."""

from dataclasses import dataclass, field
from pathlib import Path

from tools.chaos.problem import Problem


@dataclass(frozen=True)
class Backup:
    """A backup; the folder exists if the backup is complete."""

    folder: Path
    completed: frozenset[str]
    """The jobs that had completed before the backup began."""


@dataclass(frozen=True)
class Exported:
    """An exported version; the folder exists if the bag is complete."""

    folder: Path
    ark: str
    number: int


@dataclass
class Acts:
    """Noted before each act: an act whose answer was lost may or may not have happened."""

    deleted_jobs: dict[str, str] = field(default_factory=dict)
    """Job -> the path of its object. A deleted job is absent or, if the deletion was lost, unchanged."""
    deleted_batches: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    """Batches whose jobs may have failed, have been deleted while held, or never have been created."""
    lost_folders: set[str] = field(default_factory=set)
    """Jobs whose working directory a fault removed. What checks found in a stored version is lost with it."""
    backups: list[Backup] = field(default_factory=list)
    exports: list[Exported] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """Errors of acts that no fault explains, and false alarms."""
