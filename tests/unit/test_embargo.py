from datetime import UTC, datetime

import pytest

from pipeline.description.metadata import check_embargo, embargo_end
from tests.support.unpacked import refusal


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("embargoEndDate: 2030-01-31\n", "embargo until 2030-01-31"),
        ("embargoEndDate: 2030-01-31T12:00:00Z", "embargo until 2030-01-31T12:00:00Z"),
        ("embargoEndDate: none", "no embargo"),
        ("# ours\nembargoenddate:\tNone\n", "no embargo"),
    ],
)
def test_an_embargo_that_can_be_read_is_told(text: str, says: str) -> None:
    assert check_embargo(text.encode()) == f"producer/mrt-embargo.txt: {says}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "must have one line 'embargoEndDate: 2030-01-31'"),
        (b"embargoEndDate: none\nembargoEndDate: 2030-01-31\n", "must have one line"),
        (b"embargoEndDate: soon", "'soon' is not an ISO 8601 date such as 2030-01-31"),
        (b"embargoEndDate: 2030-02-30", "'2030-02-30' is not an ISO 8601 date"),
        (b"embargoEndDate: ", "'' is not an ISO 8601 date"),
        (b"until 2030", "line 1 has no colon"),
        (b"\xff", "is not UTF-8"),
    ],
)
def test_an_embargo_that_cannot_be_read_is_refused(text: bytes, says: str) -> None:
    told = refusal(lambda: check_embargo(text))

    assert says in told
    assert "producer/mrt-embargo.txt" in told


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("2030-01-31", datetime(2030, 1, 31, tzinfo=UTC)),
        ("2030-01-31T12:00:00", datetime(2030, 1, 31, 12, tzinfo=UTC)),
        ("2030-01-31T00:30:00+02:00", datetime(2030, 1, 30, 22, 30, tzinfo=UTC)),
        ("none", None),
    ],
)
def test_an_embargo_ends_at_its_date_in_utc(text: str, end: datetime | None) -> None:
    assert embargo_end(f"embargoEndDate: {text}".encode()) == end


def test_an_embargo_that_ends_outside_of_the_calendar_is_refused() -> None:
    assert "is not an ISO 8601 date" in refusal(
        lambda: embargo_end(b"embargoEndDate: 9999-12-31T23:59:59-01:00")
    )
