"""The limits that a collection's profile sets for one object."""

from pipeline.outcome import content
from pipeline.profiles.profile import Profile
from pipeline.working_storage.capacity import in_units


def check_files(profile: Profile, count: int) -> None:
    """A content failure if the collection accepts fewer files."""
    limit = profile.limits.object_files
    if limit is not None and count > limit:
        raise content(
            f"the object has {count:,} files, but collection {profile.name} accepts at most {limit:,}: "
            "divide it, or ask the collection's owner"
        )


def check_bytes(profile: Profile, count: int) -> None:
    """A content failure if the collection accepts fewer bytes."""
    limit = profile.limits.object_bytes
    if limit is not None and count > limit:
        raise content(
            f"the object has more than the {in_units(limit)} that collection {profile.name} accepts: "
            "divide it, or ask the collection's owner to raise limits.object_bytes"
        )
