"""How many jobs a collection may have at work at a time, as its profile says."""

import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from pipeline.profile import ProfileError, Profiles

REMEMBERED = 5
"""Seconds that a quota is used before the profile is read again: it is asked for whenever a job ends."""


def quota_in(folder: Path) -> Callable[[str], int | None]:
    """The quota of each collection with a profile in `folder`; None for one without."""
    return lambda name: _quota(folder, name, int(time.monotonic() // REMEMBERED))


@lru_cache(maxsize=512)
def _quota(folder: Path, name: str, _moment: int) -> int | None:
    try:
        return Profiles(folder).get(name).limits.jobs_at_work
    except ProfileError:
        return None  # the job itself will meet the same fault, and tell it
