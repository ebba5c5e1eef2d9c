"""Live progress passes through Redis, and neither writing nor reading it can harm a job."""

from pipeline.attempt import UNATTENDED, Progress
from pipeline.settings import Settings
from tasks.redis_keys import ProgressReports, ReportingAttempt, read_progress

HALF = Progress(file="b.bin", host="example.org", bytes=50, bytes_expected=100, files=1, files_expected=2)


def test_what_an_attempt_reports_is_read_by_operators(settings: Settings) -> None:
    attempt = ReportingAttempt(UNATTENDED, ProgressReports(settings), "jid0000000001")

    attempt.report(HALF)

    assert read_progress(settings, "jid0000000001") == HALF
    assert read_progress(settings, "jid0000000002") is None


def test_without_redis_reports_are_dropped_and_nothing_is_shown(settings: Settings) -> None:
    away = settings.model_copy(update={"broker_url": "redis://127.0.0.1:1/0"})

    ProgressReports(away).write("jid0000000001", HALF)

    assert read_progress(away, "jid0000000001") is None
