"""Durations, times, numbers and progress in words for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar

from pipeline.attempt import Progress
from pipeline.records import age
from pipeline.working_storage.capacity import in_units

__all__ = [
    "age",
    "ago",
    "brief",
    "by_whom",
    "counted",
    "duration",
    "in_time",
    "kept_back",
    "left",
    "listed",
    "progress",
    "seconds",
]

SPANS = ((86400, "day", "d"), (3600, "hour", "h"), (60, "minute", "m"), (1, "second", "s"))

S = TypeVar("S", bound=str)

_DURATION = re.compile(r"(\d{1,9}(?:\.\d+)?)([smhd])")


def duration(seconds: float) -> str:
    """For a sentence: the largest unit only.

    >>> duration(0.3), duration(1), duration(250), duration(7300), duration(200000)
    ('less than a second', '1 second', '4 minutes', '2 hours', '2 days')
    """
    for length, name, _ in SPANS:
        if seconds >= length:
            return counted(int(seconds // length), name)
    return "less than a second"


def seconds(text: str) -> float:
    """Of a number with its unit; ValueError for any other text.

    >>> seconds("90s"), seconds("2h")
    (90.0, 7200.0)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not a duration; write 90s, 30m, 2h or 3d")
    return float(match[1]) * next(length for length, _, unit in SPANS if unit == match[2])


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "job"), counted(1200, "job"), counted(0, "batch", "batches")
    ('1 job', '1,200 jobs', '0 batches')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def kept_back(jobs: int, sized: int, size: int, batches: int = 0) -> str:
    """What a stop keeps back; `size` is the bytes of `sized` of the jobs, and batches may not be split yet.

    >>> kept_back(1, 0, 0), kept_back(2, 2, 2048)
    ('1 job of unknown size', '2 jobs with 2.0 kB')
    >>> kept_back(3, 1, 2048)
    '3 jobs (1 with 2.0 kB, 2 of unknown size)'
    >>> kept_back(0, 0, 0), kept_back(0, 0, 0, 1), kept_back(1, 0, 0, 2)
    ('nothing now', '1 batch', '1 job of unknown size and 2 batches')
    """
    parts = [_jobs_with_size(jobs, sized, size)] if jobs else []
    if batches:
        parts.append(counted(batches, "batch", "batches"))
    return " and ".join(parts) or "nothing now"


def _jobs_with_size(jobs: int, sized: int, size: int) -> str:
    if not sized:
        return f"{counted(jobs, 'job')} of unknown size"
    if sized >= jobs:
        return f"{counted(jobs, 'job')} with {in_units(size)}"
    return f"{counted(jobs, 'job')} ({sized:,} with {in_units(size)}, {jobs - sized:,} of unknown size)"


def by_whom(by: str, reason: str, at: datetime) -> str:
    """Who stopped something, for how long and why: ` by ann@desk for 2 hours (database is moved)`."""
    who = f" by {by}" if by else ""
    return f"{who} for {duration(age(at))}" + (f" ({reason})" if reason else "")


def brief(seconds: float) -> str:
    """For a column.

    >>> brief(0.3), brief(250), brief(7300)
    ('0s', '4m', '2h')
    """
    for length, _, letter in SPANS:
        if seconds >= length:
            return f"{int(seconds // length)}{letter}"
    return "0s"


def ago(moment: datetime) -> str:
    return f"{duration(age(moment))} ago"


def in_time(moment: datetime | None) -> str:
    """`in 4 minutes`; `within seconds` if the moment has passed or is not known."""
    left = (moment - datetime.now(UTC)).total_seconds() if moment else 0.0
    return f"in {duration(left)}" if left >= 1 else "within seconds"


def listed(parts: Mapping[S, int]) -> str:
    """Numbers with their names, without zeros.

    >>> listed({"downloading": 2, "failed": 0, "pending": 1})
    '2 downloading, 1 pending'
    """
    return ", ".join(f"{number:,} {name}" for name, number in parts.items() if number)


def progress(download: Progress) -> str:
    """`Downloaded 3.2 MB of 10 MB at 1.1 MB/s, about 6 seconds left, 2 of 5 files; now a from x.org`."""
    size = f" of {in_units(download.bytes_expected)}" if download.bytes_expected is not None else ""
    rate = f" at {in_units(round(download.bytes_per_second))}/s" if download.bytes_per_second else ""
    files = (
        f", {download.files} of {download.files_expected} files"
        if download.files_expected is not None
        else ""
    )
    now = f"; now {download.file} from {download.host}" if download.file else ""
    if now and download.bytes_per_second == 0:
        now += ", which sends nothing"
    return f"Downloaded {in_units(download.bytes)}{size}{rate}{_left(download)}{files}{now}"


def _left(download: Progress) -> str:
    """The time left at this rate; empty if size or rate is not known."""
    if not download.bytes_per_second or download.bytes_expected is None:
        return ""
    return f", {left(max(0, download.bytes_expected - download.bytes) / download.bytes_per_second)}"


def left(seconds: float) -> str:
    """An estimate.

    >>> left(7300)
    'about 2 hours left'
    """
    return f"about {duration(seconds)} left"
