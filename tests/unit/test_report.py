import gzip
import json
import re
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest
from fast_mail_parser import parse_email
from pydantic import ValidationError

from pipeline.notify.batch_report import compose_report, compose_update, known_after, status_report_of
from pipeline.notify.mail import notice
from pipeline.notify.report_mail import (
    as_html,
    as_json,
    as_text,
    confirmation_mail,
    next_report,
    recipients,
    report_mail,
)
from pipeline.outcome import ObjectDescription, StepFailed
from pipeline.principal import Interface
from pipeline.profiles.profile import Profile
from pipeline.records import HistoryEntry, PayloadType, StatusReport, SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind, JobState
from tests.support.records import AT, BID, a_batch, a_job, a_submission, a_tombstone, jid

SENDER = "arkline@example.org"
C, F = JobState.COMPLETED, JobState.FAILED


def outcomes(known: StatusReport) -> dict[str, Any]:
    return known.model_dump(exclude={"last_modified"})


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


def test_the_advice_for_an_uploaded_file_names_no_source() -> None:
    job = a_job(
        1,
        JobState.FAILED,
        kind=FailureKind.CONTENT,
        last_successful_status=JobState.PROVISIONING,
        payload_type=PayloadType.FILE,
        payload_url=f"upload:{'a' * 32}/a.jpg",
    )

    (told,) = compose_report(a_batch(), [job]).failed

    assert told.advice == "Correct the problem described in the message and submit this object again."


def test_a_rejected_object_says_why_and_names_no_person() -> None:
    message = "our staff reviewed this object and did not accept it: page 3 is missing"
    stopped = HistoryEntry(
        state=F, event=Event.FAIL, by="ann", via=Interface.CLI, message="failed by ann: a mistake"
    )
    rejected = HistoryEntry(state=F, event=Event.REJECT, by="ben", via=Interface.WEB, message=message)
    facts = {"last_successful_status": JobState.PROVISIONING, "kind": FailureKind.CONTENT}
    job = a_job(1, F, message=message, **facts).model_copy(update={"history": (stopped, rejected)})

    (told,) = compose_report(a_batch(), [job]).failed

    assert (told.message, told.kind) == (message, FailureKind.CONTENT)
    assert told.advice.startswith("Correct the problem described in the message.")


def test_a_batch_whose_jobs_all_completed_is_completed() -> None:
    report = compose_report(a_batch(), [a_job(1), a_job(2)])

    assert report.status is BatchState.COMPLETED
    assert (report.counts.total, report.counts.completed, report.counts.failed) == (2, 2, 0)


@pytest.mark.parametrize("other", [F, JobState.PROCESSING, JobState.HELD])
def test_one_job_that_is_not_completed_makes_the_batch_failed(other: JobState) -> None:
    assert compose_report(a_batch(), [a_job(1), a_job(2, other)]).status is BatchState.FAILED


def test_a_deleted_job_does_not_make_the_batch_failed() -> None:
    report = compose_report(a_batch(), [a_job(1)], {jid(2): a_tombstone(2, "twice")})

    assert report.status is BatchState.COMPLETED
    assert (report.counts.total, report.counts.deleted) == (2, 1)


def test_a_batch_with_only_deleted_jobs_is_failed() -> None:
    assert compose_report(a_batch(), [], {jid(1): None}).status is BatchState.FAILED


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
    report = compose_report(a_batch(note="second try"), [a_job(1), failed], at=AT)
    text = as_text(report.model_copy(update={"sent_at": AT}))

    assert text == (
        "bid0000000001: 1 of 2 objects completed, 1 failed.\n"
        "\n"
        "Collection:  demo\n"
        "Submitted:   2026-09-01 12:00 UTC by me/Me\n"
        "Deposit:     batch.checkm (batch-manifest)\n"
        "Note:        second try\n"
        "State of:    2026-09-01 12:00 UTC\n"
        "Last report: 2026-09-01 12:00 UTC\n"
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


def stopped(thing: Any, message: str) -> Any:
    """The job or batch after a person ended its work."""
    entry = HistoryEntry(state=F, event=Event.FAIL, by="ann@desk", message=message, via=Interface.CLI)
    return thing.model_copy(update={"history": (entry,)})


def test_an_object_that_staff_stopped_is_not_said_to_be_resumed() -> None:
    message = "failed by ann@desk: the rights are not clear"
    job = stopped(a_job(1, F, kind=FailureKind.SYSTEM, message=message), message)

    (reported,) = compose_report(a_batch(), [job]).failed

    assert reported.message == "our staff stopped this object: the rights are not clear"
    assert reported.advice == "Ask our staff before you submit this object again."


def test_an_object_that_staff_stopped_without_a_reason_names_no_person() -> None:
    message = "failed by ann@desk, who gave no reason"
    job = stopped(a_job(1, F, kind=FailureKind.SYSTEM, message=message), message)

    (reported,) = compose_report(a_batch(), [job]).failed

    assert reported.message == "our staff stopped this object and gave no reason"


def test_a_fault_after_a_stop_by_staff_has_the_advice_of_the_fault() -> None:
    job = stopped(a_job(1, F, kind=FailureKind.SYSTEM, message="the disk is full"), "failed by ann@desk: x")
    fault = HistoryEntry(state=F, event=Event.FAIL, by="worker", message="the disk is full")
    job = job.model_copy(update={"history": (*job.history, fault)})

    (reported,) = compose_report(a_batch(), [job]).failed

    assert reported.message == "the disk is full"
    assert "do not submit the object again" in reported.advice


def test_a_submission_that_staff_cancelled_is_not_said_to_be_repaired() -> None:
    message = "cancelled by ann@desk: sent twice"
    batch = stopped(a_batch(kind=FailureKind.SYSTEM, message=message), message)

    report = compose_report(batch, [])

    assert report.message == "our staff cancelled this submission: sent twice"
    assert report.advice == "Ask our staff before you submit the batch again."


def test_objects_that_were_deleted_or_are_in_progress_have_advice_in_text_and_page() -> None:
    report = compose_report(a_batch(), [a_job(1, JobState.PROCESSING)], {jid(2): a_tombstone(2, "twice")})

    for text in (" ".join(as_text(report).split()), as_html(report)):
        assert "our staff will send an updated report when these objects have ended" in text
        assert "Ask our staff if you expected them" in text


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


def test_a_deleted_job_is_reported_by_its_names_and_with_the_reason_in_its_tombstone() -> None:
    text = as_text(compose_report(a_batch(), [a_job(1)], {jid(2): a_tombstone(2, "twice", local_id=("b",))}))

    assert "Deleted by our staff: 1\n" in text
    assert "  jid0000000002  2.checkm  ark:/99999/fk42  (local id b): twice\n" in text


def test_a_deleted_job_without_a_tombstone_is_reported_by_its_id() -> None:
    text = as_text(compose_report(a_batch(), [a_job(1)], {jid(2): None}))

    assert text.partition("Deleted by our staff: 1\n")[2].endswith("\n  jid0000000002\n")


def test_a_remark_on_a_completed_job_is_in_both_forms_of_the_report() -> None:
    report = compose_report(a_batch(), [a_job(1, remark="compare the names")])

    assert "please check:  compare the names" in as_text(report)
    assert "compare the names" in as_html(report)


def test_the_title_of_an_object_is_the_one_that_was_stored() -> None:
    description = ObjectDescription(what="Jazz for the bears")
    stored: dict[str, Any] = {"erc_what": "FORM TITLE", "description": description}
    report = compose_report(
        a_batch(),
        [a_job(1, **stored), a_job(2, F, erc_what="FORM TITLE")],
        {jid(3): a_tombstone(3, **stored)},
    )

    titles = [job.title for job in (*report.completed, *report.failed, *report.deleted)]
    assert titles == ["Jazz for the bears", "FORM TITLE", "Jazz for the bears"]


def test_an_update_has_only_the_changes() -> None:
    first = compose_report(a_batch(), [a_job(1), a_job(2, F), a_job(3, F), a_job(4, F)], at=AT)
    later = compose_report(
        a_batch(),
        [a_job(1), a_job(2), a_job(3, F)],
        {jid(4): a_tombstone(4, "withdrawn")},
        at=AT + timedelta(days=1),
    )
    update = compose_update(later, status_report_of(first))

    assert update is not None
    assert [job.jid for job in update.completed] == [jid(2)]
    assert [job.jid for job in update.deleted] == [jid(4)]
    assert list(update.failed) == []
    assert (update.counts.completed, update.counts.failed) == (2, 1)
    assert "Changes since 2026-09-01 12:00 UTC:" in " ".join(as_text(update).split())


def test_after_an_update_the_depositor_knows_the_end_of_every_job() -> None:
    first = compose_report(a_batch(), [a_job(1), a_job(2, F), a_job(3, F), a_job(4, F)], at=AT)
    since = status_report_of(first)
    jobs = [a_job(1), a_job(2), a_job(3, F), a_job(5, F)]
    now_true = compose_report(a_batch(), jobs, {jid(4): a_tombstone(4, "withdrawn")}, at=AT)
    update = compose_update(now_true, since)
    assert update is not None

    assert outcomes(known_after(first, None)) == outcomes(since)
    assert outcomes(known_after(update, since)) == outcomes(status_report_of(now_true))


def test_an_update_without_changes_is_not_a_report() -> None:
    first = compose_report(a_batch(), [a_job(1), a_job(2, F)], {jid(3): None}, at=AT)

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


def test_a_job_that_fails_after_it_was_reported_in_progress_is_a_change() -> None:
    since = status_report_of(compose_report(a_batch(), [a_job(1, JobState.PROCESSING), a_job(2, F)]))
    now_true = compose_report(a_batch(), [a_job(1, F), a_job(2, F)])
    update = compose_update(now_true, since)

    assert update is not None
    assert [job.jid for job in update.failed] == [jid(1)]
    assert known_after(update, since).failed_jobs == (jid(1), jid(2))
    assert known_after(update, since).unfinished_jobs == ()


def test_a_job_that_is_deleted_after_it_was_reported_in_progress_is_a_change() -> None:
    since = status_report_of(compose_report(a_batch(), [a_job(1, JobState.PROCESSING)]))
    update = compose_update(compose_report(a_batch(), [], {jid(1): None}), since)

    assert update is not None
    assert [job.jid for job in update.deleted] == [jid(1)]
    assert known_after(update, since).unfinished_jobs == ()


def test_a_job_that_is_still_in_progress_is_not_a_change() -> None:
    first = compose_report(a_batch(), [a_job(1, JobState.PROCESSING)])

    assert compose_update(first, status_report_of(first)) is None


def test_a_job_that_completes_after_it_was_reported_in_progress_is_a_change() -> None:
    first = compose_report(a_batch(), [a_job(1, JobState.PROCESSING)])
    update = compose_update(compose_report(a_batch(), [a_job(1)]), status_report_of(first))

    assert update is not None
    assert [job.jid for job in update.completed] == [jid(1)]


def test_an_update_without_changes_sends_no_mail() -> None:
    previous = StatusReport(failed_jobs=(jid(2),), successful_jobs=(jid(1),))
    report = compose_report(a_batch(), [a_job(1), a_job(2, F)])

    assert next_report(report, a_batch(), previous) is None
    assert next_report(report, a_batch(), None) is not None


def test_the_subject_has_the_outcome() -> None:
    assert a_mail([C])["Subject"] == "demo: 1 object stored (batch.checkm)"
    assert a_mail([C, F])["Subject"] == "demo: 1 of 2 objects not stored (batch.checkm)"


@pytest.mark.parametrize(
    ("jobs", "subject"),
    [
        ([C] * 40, "demo: 40 objects stored (Nachlass Müller 1911)"),
        ([F], "demo: 1 of 1 object not stored (Nachlass Müller 1911)"),
        ([C, JobState.PROCESSING], "demo: 1 of 2 objects stored (Nachlass Müller 1911)"),
        ([], "demo: no objects could be created (Nachlass Müller 1911)"),
    ],
)
def test_the_subject_counts_what_is_stored_and_names_the_deposit(jobs: list[JobState], subject: str) -> None:
    assert a_mail(jobs, deposit_name="Nachlass Müller 1911")["Subject"] == subject


def test_a_long_name_is_cut_in_the_subject() -> None:
    subject = a_mail([C], deposit_name="Harbour " * 31)["Subject"]

    assert subject.startswith("demo: 1 object stored (Harbour Harbour")
    assert subject.endswith("Harbour…)")
    assert len(subject) < 120


def test_mails_link_to_the_deposit_and_to_what_is_stored_if_the_sites_address_is_known() -> None:
    site = Settings(public_url="https://deposit.example.org/ark/").public_url
    batch = a_batch()
    report = compose_report(batch, [a_job(1), a_job(2, F)], at=AT)
    mail = report_mail(report, a_profile("ann@example.org"), batch.submission, SENDER, site)
    confirmation = confirmation_mail(BID, batch.submission, a_profile("ann@example.org"), 2, SENDER, site)
    links = ["https://deposit.example.org/ark/batches/bid0000000001"]

    assert re.findall(r"https://\S+", body(confirmation)) == links
    links.append("https://deposit.example.org/ark/objects/ark:/99999/fk41")
    assert re.findall(r"https://\S+", body(mail)) == links
    page = mail.get_body(("html",))
    assert page is not None
    assert re.findall(r'href="([^"]+)"', page.get_content()) == links
    assert "https://" not in body(a_mail([C, F]))


@pytest.mark.parametrize("url", ["deposit.example.org", "ftp://x.edu", "https://x.edu/?a=b"])
def test_an_address_of_the_site_that_is_no_beginning_of_a_link_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        Settings(public_url=url)


def test_every_report_of_a_batch_has_one_message_id_that_repetitions_share() -> None:
    def mail(reports: int) -> EmailMessage:
        batch = a_batch(BatchState.UPDATE_REPORTING)
        batch = batch.model_copy(update={"status": batch.status.model_copy(update={"reports": reports})})
        previous = StatusReport(failed_jobs=(jid(1),)) if reports else None
        report = compose_report(batch, [a_job(1)])
        due = next_report(report, batch, previous)
        assert due is not None
        return report_mail(due, a_profile("ann@example.org"), batch.submission, SENDER)

    assert mail(0)["Message-ID"] == f"<{BID}.report-1@arkline>"
    assert mail(1)["Message-ID"] == f"<{BID}.report-2@arkline>"
    assert mail(1)["In-Reply-To"] == f"<{BID}.report-1@arkline>"
    assert mail(1)["Subject"] == "demo: update: 1 object stored (batch.checkm)"
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
        "=?utf-8?q?ann=0ABcc=3A_all?=@example.org",
        "=?utf-8?q?ann=40example.org=2C_all?=@example.org",
        "=?utf-8?q??=@example.org",
    ],
)
def test_an_invalid_address_gets_no_mail_and_is_named_to_the_others(given: str) -> None:
    mail = a_mail([C], ("ok@example.org",), notification=(given,))

    assert mail["To"] == "ok@example.org"
    read = message_from_bytes(mail.as_bytes(), policy=policy.default)
    assert read["Bcc"] is None
    assert "entries that are not mail addresses" in body(read)


@pytest.mark.parametrize(
    "name",
    [
        "Views =?utf-8?q?a=0ABcc=3A_all=40example.org?=",
        "=?utf-8?q?a=0D=0A=0D=0AAnother_text?= of 1920",
        "=?=?utf-8?q?a=0ABcc=3A_all=40example.org?=",
        "(=?utf-8?b?YQpCY2M6IGFsbA==?=)",
        "Größe =?utf-8?q?=0ABcc=3A_all=40example.org?=",
    ],
)
def test_the_name_of_a_deposit_adds_neither_header_nor_text_to_a_mail(name: str) -> None:
    plain = a_mail([C])
    submission = a_submission(deposit_name=name)
    confirmation = confirmation_mail(BID, submission, a_profile("ann@example.org"), 3, SENDER)

    for mail in (a_mail([C], deposit_name=name), confirmation):
        read = message_from_bytes(mail.as_bytes(), policy=policy.default)
        assert set(read.keys()) <= set(plain.keys())
        assert read.defects == []
        assert read["Subject"].removesuffix(")").endswith(name.replace("=?", "= ?"))


def test_a_report_without_recipients_has_no_addressee() -> None:
    assert a_mail([C], ())["To"] is None
    assert recipients(a_profile(), a_submission()).addresses == ()


def test_a_report_in_any_script_survives_the_mail() -> None:
    mail = a_mail([C], note="Größe: 大きい")

    read = message_from_bytes(mail.as_bytes(), policy=policy.default)
    assert "Größe: 大きい" in body(read)


def parts(entity: bytes) -> list[bytes]:
    """The leaves of a message, for a reader that knows RFC 2046 but neither RFC 2231 nor comments."""
    header, _, content = entity.partition(b"\n\n")
    unfolded = re.sub(rb"\n[ \t]+", b" ", header)
    if not re.search(rb"^content-type: multipart/", unfolded, re.IGNORECASE | re.MULTILINE):
        return [entity]
    boundary = re.search(rb'^content-type: [^\n]*; boundary="([^"\n]{1,70})"', unfolded, re.I | re.M)
    assert boundary, f"no boundary in {unfolded!r}"
    _, *inside, end = (b"\n" + content).split(b"\n--" + boundary[1])
    assert end.rstrip(b"\n") == b"--"
    return [leaf for part in inside for leaf in parts(part.removeprefix(b"\n"))]


def test_a_mail_program_that_knows_no_divided_parameters_shows_the_report() -> None:
    mail = a_mail([C, F])

    read = parts(mail.as_bytes())

    types = [re.search(rb"content-type: ([a-z/]+)", part, re.IGNORECASE) for part in read]
    assert [found and found[1] for found in types] == [
        b"text/plain",
        b"text/html",
        b"application/json",
        b"application/json",
    ]
    assert b"1 of 2 objects completed" in read[0]
    assert max(map(len, mail.as_bytes().split(b"\n\n")[0].splitlines())) <= 78


def test_a_mail_reader_of_others_finds_both_forms_and_the_lists() -> None:
    read = parse_email(a_mail([C, F], note="Größe").as_bytes())

    assert (len(read.text_plain), len(read.text_html), read.warnings) == (1, 1, [])
    assert "Größe" in read.text_plain[0]
    assert [attached.filename for attached in read.attachments] == ["completed.json", "failed.json"]


def test_a_report_suppresses_automatic_replies() -> None:
    mail = a_mail([C])

    assert (mail["From"], mail["Auto-Submitted"]) == (SENDER, "auto-generated")
    assert mail["Date"] == "Tue, 01 Sep 2026 12:00:00 +0000"


@pytest.mark.parametrize("sender", ["arkline\r\nBcc: x@example.org", "archive <", "archive", "a@b, c@d", ""])
def test_an_invalid_sender_is_a_system_failure(sender: str) -> None:
    report = compose_report(a_batch(), [a_job(1)])

    with pytest.raises(StepFailed, match="ARKLINE_MAIL_FROM") as failure:
        report_mail(report, a_profile(), a_submission(), sender)
    assert failure.value.kind is FailureKind.SYSTEM


def test_the_mails_of_two_sites_about_batches_with_one_number_have_message_ids_of_their_own() -> None:
    def mails(site: str) -> list[EmailMessage]:
        profile, submission = a_profile("ann@example.org"), a_submission()
        reports = [compose_report(a_batch(), [a_job(1)]).model_copy(update={"number": n}) for n in (1, 2)]
        return [
            confirmation_mail(BID, submission, profile, 1, SENDER, site),
            *(report_mail(report, profile, submission, SENDER, site) for report in reports),
            notice(Settings(public_url=site), "subject", "text", "key", reports[0].reported_at),
        ]

    test, real = mails("https://test.example.org"), mails("https://deposit.example.org")

    assert len({mail["Message-ID"] for mail in test + real}) == 8
    assert [mails[2]["In-Reply-To"] for mails in (test, real)] == [
        test[1]["Message-ID"],
        real[1]["Message-ID"],
    ]
    assert all("=?" not in mail.as_string().partition("Message-ID")[2][:80] for mail in test + real)


def test_a_confirmation_has_the_number_of_objects() -> None:
    submission = a_submission(note="line\r\nbreak", type=SubmissionType.BATCH_MANIFEST)
    mail = confirmation_mail(BID, submission, a_profile("ann@example.org"), 3, SENDER)

    assert mail["Subject"] == "demo: received, 3 objects (batch.checkm)"
    assert mail["Message-ID"] == f"<{BID}.confirmation@arkline>"
    assert "We received your submission bid0000000001: 3 objects will be created." in body(mail)
    assert "Deposit:    batch.checkm (batch-manifest)" in body(mail)
