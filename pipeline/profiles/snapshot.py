"""A batch's snapshot of its collection's profile: a batch keeps the rules that it started with.

Rule: the record contains no secrets. User, password and query of a callback URL come from the profile's
current file, and only while that file names the same address.
"""

from contextlib import suppress
from datetime import datetime
from typing import Any

from pydantic import Field, ValidationError

from pipeline.principal import Interface
from pipeline.profiles.profile import Profile, ProfileError, Profiles
from pipeline.records import RewrittenRecord, now

RENEWALS = 20
"""Maximum earlier renewals that a snapshot names; the oldest are dropped."""

REASON_LIMIT = 500
"""Maximum characters of an earlier renewal's reason."""


class Renewal(RewrittenRecord):
    """The assignment of a profile to a batch; `by` is empty if the batch started with the profile."""

    since: datetime = Field(default_factory=now)
    by: str = ""
    reason: str = ""
    via: Interface | None = None
    request_id: str | None = None
    """The request of the API or of a page; absent for other interfaces, and before 0.2.1."""


class ProfileSnapshot(Renewal):
    """`/batches/BID/profile`."""

    profile: dict[str, Any]
    """The fields of `Profile`, without secrets."""
    earlier: tuple[Renewal, ...] = ()
    """The earlier profiles of the batch, oldest first."""

    def after(self, before: "ProfileSnapshot") -> "ProfileSnapshot":
        """This snapshot as the successor of `before`."""
        values = before.model_dump(exclude={"profile", "earlier"}, exclude_none=True)
        last = Renewal.model_validate(values | {"reason": before.reason[:REASON_LIMIT]})
        return self.model_copy(update={"earlier": (*before.earlier, last)[-RENEWALS:]})


def take_snapshot(
    profile: Profile,
    by: str = "",
    reason: str = "",
    via: Interface | None = None,
    request_id: str | None = None,
) -> ProfileSnapshot:
    return ProfileSnapshot(profile=profile.public(), by=by, reason=reason, via=via, request_id=request_id)


def public_profile(snapshot: ProfileSnapshot) -> Profile:
    """The profile of the snapshot, which has no secrets; fields of a newer release are ignored."""
    return Profile.model_validate(snapshot.profile, extra="ignore")


def with_secrets(profile: Profile, profiles: Profiles) -> Profile:
    """Add the secrets that the profile's file currently has."""
    if profile.callback_url is None:
        return profile
    try:
        current = profiles.get(profile.name, elsewhere=True)
    except ProfileError:
        return profile  # the file is gone or invalid: only the snapshot is left
    if current.callback_address != profile.callback_address:
        return profile
    return profile.model_copy(update={"callback_url": current.callback_url})


def profile_changes(snapshot: ProfileSnapshot | None, current: Profile) -> dict[str, tuple[Any, Any]]:
    """Field -> (value in the snapshot, current value), for the fields that differ.

    A field that an older release did not know has its default: the batch follows it, and nobody changed it.
    """
    before = {} if snapshot is None else snapshot.profile
    with suppress(ValidationError):  # damaged: a renewal replaces the snapshot, and lists what it has
        before = public_profile(snapshot).public() if snapshot else before
    return {
        field: (before.get(field), value)
        for field, value in current.public().items()
        if before.get(field) != value
    }
