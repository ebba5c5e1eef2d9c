"""A batch's own copy of its collection's profile: what a batch started with holds until it has ended.

Rule: no secret lies in the record. A callback's user, password and query are those of the profile's file as
it stands now, and only while that file still names the same address.
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
    """Field for field as `Profile`, without the secrets."""


def keep(profile: Profile, by: str = "", reason: str = "") -> ProfileSnapshot:
    return ProfileSnapshot(profile=profile.public(), by=by, reason=reason)


def restore(kept: ProfileSnapshot, profiles: Profiles) -> Profile:
    """The profile that was kept, with the secrets of today; a newer release's fields are ignored."""
    profile = Profile.model_validate(kept.profile, extra="ignore")
    if profile.callback_url is None:
        return profile
    try:
        current = profiles.get(profile.name)
    except ProfileError:
        return profile  # the file is gone or broken: what was kept is all there is
    if current.callback_address != profile.callback_address:
        return profile
    return profile.model_copy(update={"callback_url": current.callback_url})


def changes(kept: ProfileSnapshot | None, current: Profile) -> dict[str, tuple[Any, Any]]:
    """Field -> what was kept and what the file says by now, where the two differ."""
    before = {} if kept is None else kept.profile
    return {
        field: (before.get(field), value)
        for field, value in current.public().items()
        if before.get(field) != value
    }
