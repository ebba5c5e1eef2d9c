"""The limits of a collection: those of its profile, and the site's settings where the profile has none."""

from pipeline.profiles.profile import Profile
from pipeline.settings import Settings

_OF_SITE = ("object_bytes", "batch_jobs", "live_jobs", "recipients")
"""Limits that are never without a value; an operator raises one for a collection in its profile."""


def with_site_limits(profile: Profile, settings: Settings) -> Profile:
    missing = {name: getattr(settings, name) for name in _OF_SITE if getattr(profile.limits, name) is None}
    return profile.model_copy(update={"limits": profile.limits.model_copy(update=missing)})
