import json
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from pipeline.inventory.archive import (
    SentReport,
    archive_batch,
    archive_jobs,
    find_batch,
    find_job,
    find_report,
    jobs_of,
    keep_report,
    kept_report,
    tombstone,
)
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.states import BatchState, FailureKind, JobState
from tests.support.records import AT, BID, a_batch, a_job, a_submission, jid


@pytest.fixture
def inventory(tmp_path: Path) -> SqlInventory:
    return open_inventory(f"sqlite:///{tmp_path}/inventory.sqlite")


def test_a_kept_report_belongs_to_the_round_in_which_it_was_written(inventory: SqlInventory) -> None:
    sent = SentReport(number=1, at=AT, report={"bid": BID}, text="one")
    keep_report(inventory, BID, sent)

    assert kept_report(inventory, BID, 1, AT) == sent
    assert kept_report(inventory, BID, 1, AT + timedelta(seconds=1)) is None
    assert kept_report(inventory, BID, 2, AT) is None


def test_what_was_never_archived_is_not_found(inventory: SqlInventory) -> None:
    assert find_batch(inventory, BID) is None
    assert find_job(inventory, jid(1)) is None
    assert list(jobs_of(inventory, BID)) == []


def test_the_archive_has_no_secrets_of_urls(inventory: SqlInventory) -> None:
    url = "https://me:word@x.org/a?v=1&X-Amz-Signature=s3cret#page"
    archive_batch(
        inventory, a_batch(BatchState.COMPLETED, payload_url=url), [a_job(1, payload_url=url)], by="retention"
    )

    batch, job = find_batch(inventory, BID), find_job(inventory, jid(1))

    assert batch is not None
    assert job is not None
    hidden = "https://...@x.org/a?v=1&X-Amz-Signature=...#page"
    assert (batch.submission.payload_url, job.configuration.payload_url) == (hidden, hidden)


def test_an_archived_batch_is_found_with_its_jobs_and_its_report(inventory: SqlInventory) -> None:
    jobs = [a_job(1, local_id=("loc-1",)), a_job(2)]
    archive_batch(
        inventory,
        a_batch(BatchState.COMPLETED),
        jobs,
        by="retention",
        reason="30 days",
        report={"status": "completed"},
    )

    found = find_batch(inventory, BID)
    assert found is not None
    assert (found.state, found.submission) == (BatchState.COMPLETED, a_submission())
    assert json.loads(find_report(inventory, BID) or "") == {"status": "completed"}
    assert (found.disposition.who, found.disposition.why) == ("retention", "30 days")
    assert [job.jid for job in jobs_of(inventory, BID)] == [jid(1), jid(2)]
    job = find_job(inventory, jid(1))
    assert job is not None
    assert (job.identifiers, job.configuration, job.history) == (
        jobs[0].identifiers,
        jobs[0].configuration,
        jobs[0].history,
    )


def test_an_archived_deposit_has_its_name_and_one_of_an_earlier_release_its_payloads(
    inventory: SqlInventory,
) -> None:
    archive_batch(inventory, a_batch(deposit_name="Nachlass Müller 1911"), [], by="retention")
    named = find_batch(inventory, BID)
    archive_batch(inventory, a_batch(), [], by="retention")
    unnamed = find_batch(inventory, BID)

    assert named is not None
    assert unnamed is not None
    assert (named.name, unnamed.name) == ("Nachlass Müller 1911", "batch.checkm")


def test_a_batch_of_more_jobs_than_one_statement_takes_is_archived_whole(inventory: SqlInventory) -> None:
    archive_batch(inventory, a_batch(), [a_job(n) for n in range(501)], by="retention")

    assert len(list(jobs_of(inventory, BID))) == 501


def test_jobs_are_archived_as_they_are_read_and_before_their_batch(inventory: SqlInventory) -> None:
    reading = archive_jobs(inventory, (a_job(n) for n in range(501)), by="retention")

    assert next(reading).jid == jid(0)
    assert (len(list(jobs_of(inventory, BID))), find_batch(inventory, BID)) == (500, None)
    assert [job.jid for job in reading][-1] == jid(500)
    assert len(list(jobs_of(inventory, BID))) == 501


def test_archiving_again_changes_nothing(inventory: SqlInventory) -> None:
    for _ in range(2):
        archive_batch(inventory, a_batch(BatchState.COMPLETED), [a_job()], by="retention")

    assert len(list(jobs_of(inventory, BID))) == 1


def test_a_tombstone_says_who_took_a_job_out_and_why(inventory: SqlInventory) -> None:
    failed = a_job(1, JobState.FAILED, kind=FailureKind.CONTENT, message="a.jpg: 404")
    tombstone(inventory, failed, by="ann", reason="submitted twice")

    found = find_job(inventory, jid(1))
    assert found is not None
    assert (found.state, found.kind, found.message) == (JobState.DELETED, FailureKind.CONTENT, "a.jpg: 404")
    assert (found.disposition.who, found.disposition.why) == ("ann", "submitted twice")


def test_a_deletion_that_is_repeated_keeps_its_first_reason(inventory: SqlInventory) -> None:
    tombstone(inventory, a_job(1, JobState.FAILED), by="ann", reason="submitted twice")
    first = find_job(inventory, jid(1))
    tombstone(inventory, a_job(1, JobState.FAILED), by="sweep", reason="finishing a deletion")

    assert find_job(inventory, jid(1)) == first


def test_a_job_that_went_on_after_all_is_archived_as_it_ended(inventory: SqlInventory) -> None:
    tombstone(inventory, a_job(1, JobState.FAILED), by="ann", reason="submitted twice")
    archive_batch(inventory, a_batch(), [a_job(1, JobState.COMPLETED)], by="retention")

    found = find_job(inventory, jid(1))
    assert found is not None
    assert (found.state, found.disposition.who) == (JobState.COMPLETED, "retention")


def test_a_deleted_batch_leaves_tombstones_of_its_jobs_too(inventory: SqlInventory) -> None:
    tombstone(inventory, a_job(1, JobState.FAILED), by="ann", reason="submitted twice")
    tombstone(inventory, a_batch(), by="bob", reason="wrong collection", jobs=[a_job(2)])

    found = find_batch(inventory, BID)
    assert found is not None
    assert (found.state, found.disposition.why) == (BatchState.DELETED, "wrong collection")
    assert [(job.state, job.disposition.who) for job in jobs_of(inventory, BID)] == [
        (JobState.DELETED, "ann"),
        (JobState.DELETED, "bob"),
    ]


def test_a_batch_is_found_without_reading_its_report(inventory: SqlInventory) -> None:
    """... which may have many megabytes."""
    archive_batch(inventory, a_batch(BatchState.COMPLETED), by="retention", report={"status": "completed"})
    sent: list[str] = []

    @event.listens_for(Engine, "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    try:
        found = find_batch(inventory, BID)
    finally:
        event.remove(Engine, "before_cursor_execute", note)

    assert found is not None
    assert sent
    assert not [statement for statement in sent if "report" in statement]
