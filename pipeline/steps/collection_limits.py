"""What a collection accepts: the limits and the rule for file names in its profile."""

from dataclasses import dataclass

from pipeline.outcome import StepFailed, content
from pipeline.steps.context import StepContext
from pipeline.working_storage.capacity import in_units


@dataclass(frozen=True)
class CollectionLimits:
    """Limits of one object; None: the collection sets no limit."""

    collection: str
    files: int | None = None
    bytes: int | None = None
    case_fold: bool = True
    """Names that differ only in upper and lower case are refused."""

    def check_files(self, count: int) -> None:
        if self.files is not None and count > self.files:
            raise content(
                f"the object has {count:,} files, but collection {self.collection} accepts at most "
                f"{self.files:,}: divide it, or ask the collection's owner"
            )

    def check_bytes(self, count: int) -> None:
        if self.bytes is not None and count > self.bytes:
            raise self.too_large()

    def too_large(self) -> StepFailed:
        return content(
            f"the object has more than the {in_units(self.bytes or 0)} that collection {self.collection} "
            "accepts: divide it, or ask the collection's owner"
        )


def limits_of(context: StepContext) -> CollectionLimits:
    """The limits of the job's collection."""
    profile = context.profile
    return CollectionLimits(
        collection=profile.name,
        files=profile.limits.object_files,
        bytes=profile.limits.object_bytes,
        case_fold=not profile.case_sensitive_names,
    )
