"""The acts of operators in a run, as far as they excuse what the checker finds missing."""

from dataclasses import dataclass, field


@dataclass
class Acts:
    """Noted before each act: an act whose answer was lost has happened or not."""

    deleted_jobs: dict[str, str] = field(default_factory=dict)
    """Job -> the path of its object. A job that was deleted is absent, or as if it was not."""
    deleted_batches: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    """Batches whose jobs may have failed, be deleted if they were held, or never have been created."""
