"""Durations and numbers in the few sentences that operations write, for the checks before a submission."""

from datetime import UTC, datetime

SPANS = ((86400, "day", "d"), (3600, "hour", "h"), (60, "minute", "m"), (1, "second", "s"))


def age(moment: datetime) -> float:
    """Seconds since then. A host's wrong clock makes this wrong, and nothing else."""
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())


def duration(seconds: float) -> str:
    """For a sentence: the largest unit only.

    >>> duration(0.3), duration(1), duration(250), duration(7300), duration(200000)
    ('less than a second', '1 second', '4 minutes', '2 hours', '2 days')
    """
    for length, name, _ in SPANS:
        if seconds >= length:
            return counted(int(seconds // length), name)
    return "less than a second"


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "job"), counted(1200, "job"), counted(0, "batch", "batches")
    ('1 job', '1,200 jobs', '0 batches')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def by_whom(by: str, reason: str, at: datetime) -> str:
    """`by ann@desk for 2 hours: database is moved`: who stopped something, since when, why."""
    who = f" by {by}" if by else ""
    return f"{who} for {duration(age(at))}" + (f" ({reason})" if reason else "")
