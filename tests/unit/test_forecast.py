"""When storage will be full, and how far such forecasts were off."""

from datetime import date, timedelta

import pytest

from operations.forecast import Forecast, forecast

TODAY = date(2026, 12, 1)
GB = 10**9


def ago(days: int) -> date:
    return TODAY - timedelta(days=days)


def daily(first: int, size: int, every: int = 1) -> dict[date, int]:
    return {ago(days): size for days in range(first, -1, -every)}


def made(added: dict[date, int], capacity: int, used: int | None = None) -> Forecast:
    total = sum(added.values()) if used is None else used
    done = forecast(added, min(added), TODAY, total, capacity)
    assert done is not None
    return done


def test_less_than_fourteen_days_of_data_give_no_forecast() -> None:
    assert forecast({}, None, TODAY, 0, GB) is None
    assert forecast(daily(13, GB), ago(13), TODAY, 14 * GB, 100 * GB) is None
    assert forecast(daily(14, GB), ago(14), TODAY, 15 * GB, 100 * GB) is not None


def test_storage_is_full_when_the_rate_of_the_last_90_days_has_used_what_is_left() -> None:
    outcome = made(daily(200, GB), 301 * GB)

    assert (outcome.used, outcome.rate, outcome.rate_days) == (201 * GB, GB, 90)
    assert outcome.full_on == TODAY + timedelta(days=100)


def test_a_younger_collection_is_measured_by_its_own_days() -> None:
    outcome = made({ago(19): 10 * GB, ago(5): 10 * GB}, 120 * GB)

    assert (outcome.rate, outcome.rate_days) == (GB, 20)
    assert outcome.full_on == TODAY + timedelta(days=100)


def test_deposits_of_more_than_90_days_ago_do_not_count_for_the_rate() -> None:
    outcome = made({ago(90): 10 * GB, ago(89): 9 * GB}, 1000 * GB)

    assert outcome.rate == 9 * GB / 90


@pytest.mark.parametrize(
    ("added", "capacity"),
    [
        (daily(100, GB), 101 * GB),  # full to the last byte
        (daily(100, GB), GB),
        ({ago(100): GB}, 2 * GB),  # nothing new
        (daily(100, 1), 10**30),
    ],
)
def test_no_day_is_invented(added: dict[date, int], capacity: int) -> None:
    assert made(added, capacity).full_on is None


def test_forecasts_of_steady_growth_had_no_error_and_are_compared_for_a_year() -> None:
    outcome = made(daily(1000, GB), 5000 * GB)

    assert (outcome.median_error, outcome.compared) == (0, 365)


def test_the_median_error_is_that_of_the_forecasts_30_days_before_what_was_stored() -> None:
    # a rate of 1 GB a day until 30 days ago, and then of 3
    added = daily(200, GB) | daily(29, 3 * GB)
    outcome = made(added, 5000 * GB)
    # by hand: the forecast of N days ago said 30 GB; of the days after it, the last 30 - (N - 30) had 3 GB
    misses = [2 * GB * max(0, 60 - days) for days in range(30, 187)]

    assert outcome.compared == len(misses)
    assert outcome.median_error == sorted(misses)[len(misses) // 2]
    assert made(daily(59, GB) | daily(29, 3 * GB), 5000 * GB).median_error == 45 * GB


def test_without_a_forecast_of_30_days_ago_there_is_no_error() -> None:
    outcome = made(daily(43, GB), 5000 * GB)
    assert (outcome.median_error, outcome.compared) == (None, 0)
    assert made(daily(44, GB), 5000 * GB).compared == 1
