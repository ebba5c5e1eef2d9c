"""What a collection may take of the fleet at a time, as its profile says: jobs at work."""

import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from pipeline.profiles.profile import ProfileError, ProfileLimits, Profiles

REMEMBERED = 5
"""Seconds that a quota is used before the profile is read again: it is asked for whenever a job ends."""


def quota_in(folder: Path) -> Callable[[str], int | None]:
    """The quota of each collection with a profile in `folder`; None for one without."""
    return lambda name: _limits(folder, name, int(time.monotonic() // REMEMBERED)).jobs_at_work


@lru_cache(maxsize=512)
def _limits(folder: Path, name: str, _moment: int) -> ProfileLimits:
    try:
        return Profiles(folder).get(name).limits
    except ProfileError:
        return ProfileLimits()  # the job itself will meet the same fault, and tell it
