"""The quota of a collection: how many of its jobs may be active at a time, by its profile."""

import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from pipeline.profiles.limits import ProfileLimits
from pipeline.profiles.profile import ProfileError, Profiles

CACHE_SECONDS = 5
"""Seconds for which a quota is cached: it is needed whenever a job ends."""


def quota_in(folder: Path) -> Callable[[str], int | None]:
    """The function from a collection's name to its quota, by the profiles in `folder`; None is no limit."""
    return lambda name: _limits(folder, name, int(time.monotonic() // CACHE_SECONDS)).jobs_at_work


@lru_cache(maxsize=512)
def _limits(folder: Path, name: str, _moment: int) -> ProfileLimits:
    try:
        return Profiles(folder).get(name).limits
    except ProfileError:
        return ProfileLimits()  # the job will meet the same fault and report it
