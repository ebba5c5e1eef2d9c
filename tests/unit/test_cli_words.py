from datetime import UTC, datetime, timedelta

import pytest
import typer

from entrypoints.cli import options
from operations import visibility
from operations.deposits import submission as submitting
from pipeline import humanize
from pipeline.errors import UsageRefused
from pipeline.records import SubmissionType


@pytest.mark.parametrize(
    ("seconds", "spoken", "brief"),
    [
        (0.2, "less than a second", "0s"),
        (1, "1 second", "1s"),
        (59.9, "59 seconds", "59s"),
        (60, "1 minute", "1m"),
        (7199, "1 hour", "1h"),
        (3 * 86400, "3 days", "3d"),
    ],
)
def test_a_duration_is_shown_in_its_largest_unit(seconds: float, spoken: str, brief: str) -> None:
    assert humanize.duration(seconds) == spoken
    assert humanize.brief(seconds) == brief


def test_a_clock_that_is_behind_gives_no_negative_age() -> None:
    assert humanize.age(datetime.now(UTC) + timedelta(hours=1)) == 0


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5h", 5400), (" 2d ", 172800)])
def test_a_duration_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert options.read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "-5m", "5 weeks"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="90s, 30m, 2h or 3d"):
        options.read_duration(text)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://example.org/a/b.zip", SubmissionType.CONTAINER),
        ("http://example.org/b.tar.gz?x=1", SubmissionType.CONTAINER),
        ("http://example.org/b.rar", SubmissionType.FILE),
        ("http://example.org/", SubmissionType.FILE),
    ],
)
def test_the_file_extension_distinguishes_a_container_from_a_file(url: str, expected: SubmissionType) -> None:
    assert submitting.submission_type(url, None) is expected


def test_an_explicit_type_is_not_changed() -> None:
    given = SubmissionType.OBJECT_MANIFEST

    assert submitting.submission_type("http://example.org/a.checkm", given) is given


def test_a_manifest_needs_its_type() -> None:
    with pytest.raises(UsageRefused, match="batch-manifest"):
        submitting.submission_type("http://example.org/A.CHECKM", None)


@pytest.mark.parametrize("url", ["a.txt", "file:///etc/passwd", "http://", "http://[::1", "//example.org/a"])
def test_only_web_addresses_are_content(url: str) -> None:
    with pytest.raises(UsageRefused):
        submitting.check_url(url)


def test_an_id_of_neither_a_job_nor_a_batch_is_refused() -> None:
    with pytest.raises(UsageRefused, match="neither a batch"):
        visibility.kind_of("ark:/99999/fk4")
