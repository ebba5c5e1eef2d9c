"""When storage will be full at the rate of the last 90 days, and how well that rate foretold the past."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from statistics import median

RATE_DAYS = 90
LEAST_DAYS = 14
"""Days since the first deposit without which nothing is forecast."""

AHEAD = 30
"""Days between a forecast of the past and the day with which it is compared."""

PAST_DAYS = 365
"""Days of which every forecast is compared with what happened."""

NEEDED_DAYS = RATE_DAYS + AHEAD + PAST_DAYS
"""Days of figures that a forecast reads."""

FARTHEST = 100 * 365
"""Days: what is farther away is not forecast."""


@dataclass(frozen=True)
class Forecast:
    capacity: int
    used: int
    rate: float
    """Bytes a day."""
    rate_days: int
    """The days of which this is the mean."""
    full_on: date | None
    """None: not within a hundred years at this rate, or full already."""
    median_error: int | None
    """By how many bytes the forecasts of the last year missed what was stored 30 days later; None: there are
    none as yet."""
    compared: int
    """The number of these forecasts, one a day."""


def forecast(
    added: Mapping[date, int], first: date | None, today: date, used: int, capacity: int
) -> Forecast | None:
    """`added`: bytes by day, of NEEDED_DAYS; `first`: the day of the first deposit. None if too recent."""
    if first is None or (today - first).days < LEAST_DAYS:
        return None
    total, totals = 0, {}
    begin = max(first, today - timedelta(days=NEEDED_DAYS)) - timedelta(days=1)
    for number in range((today - begin).days + 1):
        day = begin + timedelta(days=number)
        total += added.get(day, 0)
        totals[day] = total

    def rate_on(day: date) -> tuple[float, int]:
        days = min(RATE_DAYS, (day - begin).days)
        return (totals[day] - totals[day - timedelta(days=days)]) / days, days

    errors = []
    for number in range(AHEAD, AHEAD + PAST_DAYS):
        day = today - timedelta(days=number)
        if (day - first).days < LEAST_DAYS:
            break
        then = totals[day + timedelta(days=AHEAD)] - totals[day]
        errors.append(abs(rate_on(day)[0] * AHEAD - then))
    rate, days = rate_on(today)
    left = (capacity - used) / rate if rate > 0 else FARTHEST
    return Forecast(
        capacity=capacity,
        used=used,
        rate=rate,
        rate_days=days,
        full_on=today + timedelta(days=int(left)) if 0 < left < FARTHEST else None,
        median_error=round(median(errors)) if errors else None,
        compared=len(errors),
    )
