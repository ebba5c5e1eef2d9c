"""A batch's snapshot of its collection's profile: the rules that a batch starts with hold until it has ended.

Rule: the record contains no secrets. User, password and query of a callback URL come from the profile's
current file, and only while that file names the same address.
"""

from datetime import datetime
from typing import Any

from pydantic import Field

from pipeline.profiles.profile import Profile, ProfileError, Profiles
from pipeline.records import Record, now


class ProfileSnapshot(Record):
    """`/batches/BID/profile`."""

    since: datetime = Field(default_factory=now)
    by: str = ""
    reason: str = ""
    profile: dict[str, Any]
    """The fields of `Profile`, without secrets."""


def take_snapshot(profile: Profile, by: str = "", reason: str = "") -> ProfileSnapshot:
    return ProfileSnapshot(profile=profile.public(), by=by, reason=reason)


def restore_profile(snapshot: ProfileSnapshot, profiles: Profiles) -> Profile:
    """The profile of the snapshot with the current secrets; fields of a newer release are ignored."""
    profile = Profile.model_validate(snapshot.profile, extra="ignore")
    if profile.callback_url is None:
        return profile
    try:
        current = profiles.get(profile.name)
    except ProfileError:
        return profile  # the file is gone or invalid: only the snapshot is left
    if current.callback_address != profile.callback_address:
        return profile
    return profile.model_copy(update={"callback_url": current.callback_url})


def profile_changes(snapshot: ProfileSnapshot | None, current: Profile) -> dict[str, tuple[Any, Any]]:
    """Field -> (value in the snapshot, current value), for the fields that differ."""
    before = {} if snapshot is None else snapshot.profile
    return {
        field: (before.get(field), value)
        for field, value in current.public().items()
        if before.get(field) != value
    }
