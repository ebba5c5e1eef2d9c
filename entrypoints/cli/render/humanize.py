"""Durations, moments and numbers as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar

from operations.wording import SPANS, age, counted, duration

__all__ = ["age", "ago", "brief", "counted", "duration", "in_time", "listed"]

S = TypeVar("S", bound=str)


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
    """`in 4 minutes`; `within seconds` if the moment is over or not known."""
    left = (moment - datetime.now(UTC)).total_seconds() if moment else 0.0
    return f"in {duration(left)}" if left >= 1 else "within seconds"


def listed(parts: Mapping[S, int]) -> str:
    """Numbers with their names, without zeros.

    >>> listed({"downloading": 2, "failed": 0, "pending": 1})
    '2 downloading, 1 pending'
    """
    return ", ".join(f"{number:,} {name}" for name, number in parts.items() if number)
