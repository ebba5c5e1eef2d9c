import gzip
import json
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest

from pipeline.notify.report import (
    as_json,
    as_text,
    compose_report,
    compose_update,
    confirmation_mail,
    next_report_mail,
    recipients,
    report_mail,
    status_report_of,
)
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profile, Suppression
from pipeline.records import StatusReport, SubmissionType
from pipeline.states import BatchState, FailureKind, JobState
from tests.support.records import AT, BID, a_batch, a_job, a_submission, jid

SENDER = "arkline@example.org"
C, F = JobState.COMPLETED, JobState.FAILED


def a_profile(*notification: str) -> Profile:
    return Profile(
        name="demo",
        owner="ark:/99999/j2000000",
        collections=("ark:/99999/m5000000",),
        notification=notification,
    )


def a_mail(
    jobs: list[JobState], recipients: tuple[str, ...] = ("ann@example.org",), **submission: Any
) -> EmailMessage:
    batch = a_batch(**submission)
    report = compose_report(batch, [a_job(n, state) for n, state in enumerate(jobs, 1)], at=AT)
    return report_mail(report, a_profile(*recipients), batch.submission, SENDER)


def attachments(mail: EmailMessage) -> dict[str, bytes]:
    contents = {}
    for part in mail.iter_attachments():
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        contents[str(part.get_filename())] = content
    return contents


def body(mail: EmailMessage, form: str = "plain") -> str:
    part = mail.get_body((form,))
    assert part is not None
    return str(part.get_content())


def test_a_batch_whose_jobs_all_completed_is_completed() -> None:
    report = compose_report(a_batch(), [a_job(1), a_job(2)])

    assert report.status is BatchState.COMPLETED
    assert (report.counts.total, report.counts.completed, report.counts.failed) == (2, 2, 0)


@pytest.mark.parametrize("other", [F, JobState.PROCESSING, JobState.HELD])
def test_one_job_that_is_not_completed_makes_the_batch_failed(other: JobState) -> None:
    assert compose_report(a_batch(), [a_job(1), a_job(2, other)]).status is BatchState.FAILED


def test_a_deleted_job_does_not_make_the_batch_failed() -> None:
    report = compose_report(a_batch(), [a_job(1)], {jid(2): "submitted twice"})

    assert report.status is BatchState.COMPLETED
    assert (report.counts.total, report.counts.deleted) == (2, 1)


def test_a_batch_with_only_deleted_jobs_is_failed() -> None:
    assert compose_report(a_batch(), [], {jid(1): ""}).status is BatchState.FAILED


def test_a_batch_that_could_not_be_split_is_failed_and_says_why() -> None:
    batch = a_batch(message="line 7: no URL", kind=FailureKind.CONTENT)
    report = compose_report(batch, [])

    assert report.status is BatchState.FAILED
    text = as_text(report)
    assert "no objects could be created from this submission" in text
    assert "line 7: no URL" in text
    assert "submit the batch again" in " ".join(text.split())


def test_a_failed_job_is_reported_with_its_message_and_what_to_do() -> None:
    failed = a_job(
        3,
        F,
        payload_name="bigHunt.checkm",
        message="http://source.example/bigHunt.jpg: 404 Not Found",
        kind=FailureKind.CONTENT,
        last_successful_status=JobState.PROVISIONING,
        local_id=("loc-3", "hunt"),
    )
    text = as_text(compose_report(a_batch(note="second try"), [a_job(1), failed], at=AT))

    assert text == (
        "bid0000000001: 1 of 2 objects completed, 1 failed.\n"
        "\n"
        "Collection: demo\n"
        "Submitted:  2026-09-01 12:00 UTC by me/Me\n"
        "Payload:    batch.checkm (batch-manifest)\n"
        "Note:       second try\n"
        "Reported:   2026-09-01 12:00 UTC\n"
        "\n"
        "Failed: 1\n"
        "\n"
        "  jid0000000003  bigHunt.checkm  ark:/99999/fk43  (local id loc-3; hunt)\n"
        "      what happened: http://source.example/bigHunt.jpg: 404 Not Found\n"
        "      what to do:    Correct the problem described in the message. If you\n"
        "                     corrected it at the source, ask our staff to resume the\n"
        "                     job; otherwise correct the submission and submit this\n"
        "                     object again.\n"
        "\n"
        "Completed: 1\n"
        "  jid0000000001  1.checkm  ark:/99999/fk41\n"
    )


@pytest.mark.parametrize(
    ("kind", "last", "advice"),
    [
        (FailureKind.CONTENT, None, "cannot be resumed"),
        (FailureKind.CONTENT, JobState.PROVISIONING, "ask our staff to resume the job"),
        (FailureKind.SYSTEM, None, "do not submit the object again"),
        (FailureKind.TRANSIENT, None, "do not submit the object again"),
        (None, None, "Contact the repository's staff"),
    ],
)
def test_the_advice_says_who_has_to_act(kind: FailureKind | None, last: JobState | None, advice: str) -> None:
    job = a_job(1, F, kind=kind, last_successful_status=last)

    assert advice in compose_report(a_batch(), [job]).failed[0].advice


def test_a_failure_that_is_over_is_not_reported() -> None:
    job = a_job(1, C, kind=FailureKind.SYSTEM, message="the disk was full")

    assert "disk" not in as_text(compose_report(a_batch(), [job]))


def test_file_names_cannot_inject_control_characters() -> None:
    text = as_text(compose_report(a_batch(), [a_job(1, payload_name="a\x1b[2J\r\nFailed: 99.jpg")]))

    assert "\x1b" not in text
    assert "\nFailed" not in text


def test_a_payload_without_a_name_is_named_by_the_last_part_of_its_url() -> None:
    url = "https://ann:secret@source.example/in/big%20hunt.zip?token=secret"
    text = as_text(compose_report(a_batch(payload_url=url, payload_filename=""), [a_job(1, payload_url=url)]))

    assert "big hunt.zip" in text
    assert "secret" not in text


def test_a_long_list_is_cut_in_the_text_and_whole_in_the_json() -> None:
    report = compose_report(a_batch(), [a_job(n) for n in range(1, 251)])

    assert "  and 50 more\n" in as_text(report)
    assert len(json.loads(as_json(report))["completed"]) == 250


def test_a_deleted_job_is_reported_with_the_reason_in_its_tombstone() -> None:
    text = as_text(compose_report(a_batch(), [a_job(1)], {jid(2): "submitted twice"}))

    assert "Deleted by our staff: 1\n  jid0000000002: submitted twice\n" in text


def test_an_update_has_only_the_changes() -> None:
    first = compose_report(a_batch(), [a_job(1), a_job(2, F), a_job(3, F), a_job(4, F)], at=AT)
    later = compose_report(
        a_batch(),
        [a_job(1), a_job(2), a_job(3, F)],
        {jid(4): "withdrawn"},
        number=2,
        at=AT + timedelta(days=1),
    )
    update = compose_update(later, status_report_of(first))

    assert update is not None
    assert [job.jid for job in update.completed] == [jid(2)]
    assert [job.jid for job in update.deleted] == [jid(4)]
    assert update.failed == ()
    assert (update.counts.completed, update.counts.failed) == (2, 1)
    assert "Changes since 2026-09-01 12:00 UTC:" in " ".join(as_text(update).split())


def test_an_update_without_changes_is_not_a_report() -> None:
    first = compose_report(a_batch(), [a_job(1), a_job(2, F)], {jid(3): ""}, at=AT)

    assert compose_update(first, status_report_of(first)) is None


def test_a_job_that_failed_again_is_not_a_change() -> None:
    first = compose_report(a_batch(), [a_job(1, F, message="404")])
    second = compose_report(a_batch(), [a_job(1, F, message="503", retry_count=1)])

    assert compose_update(second, status_report_of(first)) is None


def test_a_second_update_has_the_changes_since_the_first() -> None:
    first = compose_report(a_batch(), [a_job(1, F), a_job(2, F)])
    second = compose_report(a_batch(), [a_job(1), a_job(2, F)])
    third = compose_report(a_batch(), [a_job(1), a_job(2)])
    update = compose_update(third, status_report_of(second))

    assert compose_update(second, status_report_of(first)) is not None
    assert update is not None
    assert [job.jid for job in update.completed] == [jid(2)]


def test_a_job_that_completes_after_it_was_reported_in_progress_is_a_change() -> None:
    first = compose_report(a_batch(), [a_job(1, JobState.PROCESSING)])
    update = compose_update(compose_report(a_batch(), [a_job(1)]), status_report_of(first))

    assert update is not None
    assert [job.jid for job in update.completed] == [jid(1)]


def test_an_update_without_changes_sends_no_mail() -> None:
    previous = StatusReport(failed_jobs=(jid(2),), successful_jobs=(jid(1),))
    jobs = [a_job(1), a_job(2, F)]

    assert next_report_mail(a_batch(), jobs, {}, previous, a_profile("ann@example.org"), SENDER) is None
    assert next_report_mail(a_batch(), jobs, {}, None, a_profile("ann@example.org"), SENDER) is not None


def test_a_collection_with_mail_suppressed_gets_no_mail() -> None:
    profile = a_profile("ann@example.org").model_copy(update={"notification_suppression": Suppression.FULL})

    assert next_report_mail(a_batch(), [a_job(1)], {}, None, profile, SENDER) is None


def test_the_subject_has_the_outcome() -> None:
    assert a_mail([C])["Subject"] == f"Ingest: OK -- Submission Processed: {BID}"
    assert a_mail([C, F])["Subject"] == f"Ingest: FAIL -- Submission Processed: {BID}"


def test_every_report_of_a_batch_has_one_message_id_that_repetitions_share() -> None:
    def mail(reports: int) -> EmailMessage:
        batch = a_batch(BatchState.UPDATE_REPORTING)
        batch = batch.model_copy(update={"status": batch.status.model_copy(update={"reports": reports})})
        previous = StatusReport(failed_jobs=(jid(1),)) if reports else None
        composed = next_report_mail(batch, [a_job(1)], {}, previous, a_profile("ann@example.org"), SENDER)
        assert composed is not None
        return composed

    assert mail(0)["Message-ID"] == f"<{BID}.report-1@arkline>"
    assert mail(1)["Message-ID"] == f"<{BID}.report-2@arkline>"
    assert mail(1)["In-Reply-To"] == f"<{BID}.report-1@arkline>"
    assert mail(1)["Subject"] == f"Ingest: OK -- Submission Updated: {BID}"
    assert mail(1).as_bytes() == mail(1).as_bytes()


def test_the_lists_are_attached_as_json_unless_they_are_empty() -> None:
    assert attachments(a_mail([C])).keys() == {"completed.json"}
    both = attachments(a_mail([C, F]))
    assert json.loads(both["completed.json"])["completedJobs"][0]["ark"] == "ark:/99999/fk41"
    assert json.loads(both["failed.json"])["failedJobs"][0]["jid"] == jid(2)
    assert "attached for use by programs: completed.json and failed.json" in body(a_mail([C, F]))


def test_a_list_too_large_for_mail_is_compressed() -> None:
    mail = a_mail([C] * 20_000)

    (packed,) = attachments(mail).items()
    assert packed[0] == "completed.json.gz"
    assert len(json.loads(gzip.decompress(packed[1]))["completedJobs"]) == 20_000
    assert len(mail.as_bytes()) < 1_000_000


def test_recipients_of_profile_and_submission_get_one_mail() -> None:
    mail = a_mail(
        [C], ("ann@example.org", "bob@example.org"), notification=("ANN@example.org; carl@example.org",)
    )

    assert mail["To"] == "ann@example.org, bob@example.org, carl@example.org"


@pytest.mark.parametrize(
    "given",
    [
        "ann@example.org\r\nBcc: all@example.org",
        "ann",
        "ann@",
        "@example.org",
        "Ann <ann@example.org>",
        "ann@exa mple.org",
        "änn@example.org",
        "ann@example.org\x00",
    ],
)
def test_an_invalid_address_gets_no_mail_and_is_named_to_the_others(given: str) -> None:
    mail = a_mail([C], ("ok@example.org",), notification=(given,))

    assert mail["To"] == "ok@example.org"
    read = message_from_bytes(mail.as_bytes(), policy=policy.default)
    assert read["Bcc"] is None
    assert "entries that are not mail addresses" in body(read)


def test_a_report_without_recipients_has_no_addressee() -> None:
    assert a_mail([C], ())["To"] is None
    assert recipients(a_profile(), a_submission()).addresses == ()


def test_a_report_in_any_script_survives_the_mail() -> None:
    mail = a_mail([C], note="Größe: 大きい")

    read = message_from_bytes(mail.as_bytes(), policy=policy.default)
    assert "Größe: 大きい" in body(read)


def test_a_report_suppresses_automatic_replies() -> None:
    mail = a_mail([C])

    assert (mail["From"], mail["Auto-Submitted"]) == (SENDER, "auto-generated")
    assert mail["Date"] == "Tue, 01 Sep 2026 12:00:00 +0000"


def test_an_invalid_sender_is_a_system_failure() -> None:
    report = compose_report(a_batch(), [a_job(1)])

    with pytest.raises(StepFailed, match="ARKLINE_MAIL_FROM") as failure:
        report_mail(report, a_profile(), a_submission(), "arkline\r\nBcc: x@example.org")
    assert failure.value.kind is FailureKind.SYSTEM


def test_a_confirmation_has_the_number_of_objects() -> None:
    submission = a_submission(note="line\r\nbreak", type=SubmissionType.BATCH_MANIFEST)
    mail = confirmation_mail(BID, submission, a_profile("ann@example.org"), 3, SENDER)

    assert mail["Subject"] == f"Ingest: OK -- Submission Queued: {BID}"
    assert mail["Message-ID"] == f"<{BID}.confirmation@arkline>"
    assert "We received your submission bid0000000001: 3 objects will be created." in body(mail)
    assert "Payload:    batch.checkm (batch-manifest)" in body(mail)
