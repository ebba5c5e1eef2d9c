"""Numbers of a large deposit: the part is written like the whole."""

from datetime import UTC, datetime

from entrypoints.cli.commands import watch_commands
from operations.jobs.batch_view import BatchView
from pipeline.records import SubmissionType
from pipeline.states import BatchState, Bucket, JobState

NOW = datetime(2026, 9, 1, tzinfo=UTC)


def test_a_watch_writes_large_numbers_alike() -> None:
    facts = {
        "bid": "bid0000000001",
        "status": BatchState.PROCESSING,
        "since": NOW,
        "profile": "demo",
        "payload_url": "https://a.example/m.checkm",
        "payload_type": SubmissionType.OBJECT_MANIFEST,
        "submitted_at": NOW,
        "total": 9000,
        "buckets": {Bucket.PROCESSING: 2000, Bucket.COMPLETED: 5000, Bucket.FAILED: 2000},
        "jobs": {JobState.COMPLETED: 5000, JobState.FAILED: 2000},
    }

    assert watch_commands.ended(BatchView.model_validate(facts)) == "7,000 of 9,000 jobs, 2,000 failed"
