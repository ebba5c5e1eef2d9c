"""What people read, composed of fixed records: mails, explanations, and the manual page of the commands."""

from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import EmailMessage
from itertools import chain
from typing import Any

from entrypoints.render import explanation, remedies
from operations.explanation import Explanation, Obstacle
from operations.reasons import Reason
from pipeline.checks import CheckSummary, Stage, Stopping
from pipeline.errors import Action, Remedy
from pipeline.inventory.base import DamagedFile, PreservationEvent
from pipeline.inventory.findings import UnreportedRun
from pipeline.notify import mail
from pipeline.notify.batch_report import compose_report, compose_update, status_report_of
from pipeline.notify.report_mail import confirmation_mail, report_mail
from pipeline.profiles.profile import Profile
from pipeline.records import HistoryEntry
from pipeline.settings import Settings
from pipeline.states import FailureKind, JobState
from tests.support.checks import found_in, scanned
from tests.support.records import AT, BID, a_batch, a_job, a_tombstone, jid
from tools import man_page

PROFILE = Profile(
    name="demo",
    owner="ark:/99999/j2000000",
    collections=("ark:/99999/m5000000",),
    notification=("ann@example.org",),
)
SENDER = "arkline@example.org"


def commands() -> str:
    """The manual page, entrypoints/cli/arkline.1, without its first line, which has the version."""
    return man_page.page().partition("\n")[2]


def mails() -> str:
    return "\n".join(chain.from_iterable(map(_shown, _mails())))


def explanations() -> str:
    """Every reason in words, for a job and for a batch; an obstacle with a remedy; every remedy."""
    lines = [
        f"{reason} ({kind}): {explanation.text(_explained(kind, reason))}"
        for reason in Reason
        for kind in ("job", "batch")
    ]
    hindered = {"obstacles": (Obstacle(reason=Reason.NO_BEAT),), "remedies": (Remedy(Action.START_BEAT),)}
    lines.append(explanation.text(_explained("job", Reason.STARTING).model_copy(update=hindered)))
    for action in Action:
        lines += [f"{action}: {hint}" for hint in remedies.hints((Remedy(action, "TARGET"),))]
    return "\n".join((*lines, ""))


def _explained(kind: str, reason: Reason) -> Explanation:
    return Explanation(
        id="jid0000000001" if kind == "job" else BID,
        kind=kind,
        name="a.checkm",
        bid=BID if kind == "job" else "",
        profile="demo",
        reason=reason,
        state="failed",
        since=datetime.now(UTC),
        message="the fault",
        waits_for="subject",
        holder="holder",
        hold_reason="why not",
        limit=8,
        taken=7,
        needed=6,
        ahead=5,
        failed_in="downloading",
        failure=FailureKind.CONTENT,
        resumes_in="downloading",
        jobs={"failed": 2, "completed": 1},
        total=3,
        users={"jid0000000002": 4},
        ark="ark:/99999/fk4one",
    )


def _mails() -> Iterator[EmailMessage]:
    batch = a_batch(note="spring")
    failed = a_job(
        2,
        JobState.FAILED,
        kind=FailureKind.CONTENT,
        message="http://source.example/2.jpg: 404 Not Found",
        last_successful_status=JobState.PROVISIONING,
    )
    stuck = a_job(3, JobState.FAILED, kind=FailureKind.SYSTEM, message="storage is read-only")
    stopping = Stopping(finding="3f9a2c41d0b7e655", codes=("Eicar",))
    stopped = a_job(
        6,
        JobState.FAILED,
        kind=FailureKind.CONTENT,
        message="the check clamav found something in 1 file: 'a.exe' (Eicar) (finding 3f9a2c41d0b7e655)",
        last_successful_status=JobState.DOWNLOADING,
        checks=(CheckSummary.of(scanned(found_in("a.exe", "Eicar"), "b.txt", at=AT), stopping=stopping),),
    )
    first = compose_report(
        batch,
        [
            a_job(1, remark="File names were read as CP437."),
            failed,
            stuck,
            a_job(4, JobState.PROCESSING),
            stopped,
        ],
        {jid(5): a_tombstone(5, "deposited twice")},
        at=AT,
    )
    ended = HistoryEntry(state=JobState.COMPLETED, at=AT, by="worker-1")
    again = a_job(2).model_copy(update={"history": (ended,)})
    changed = compose_report(batch, [a_job(1), again, stuck, a_job(4)], {jid(5): None}, at=AT)
    update = compose_update(changed.model_copy(update={"number": 2}), status_report_of(first))
    unsplit = compose_report(a_batch(message="line 7: no URL", kind=FailureKind.CONTENT), [], at=AT)
    assert update is not None
    yield confirmation_mail(BID, batch.submission, PROFILE, 4, SENDER)
    for report in (first, update, unsplit):
        yield report_mail(report, PROFILE, batch.submission, SENDER)
    settings = Settings(_env_file=None, operator_mail="ops@example.org", mail_from=SENDER)
    facts: dict[str, Any] = {"since": AT, "message": "No space left", "hosts": ("a", "b")}
    for over in (None, AT):
        yield mail.outage_notice(settings, "storage", **facts, ended=over)
    yield mail.outage_notice(settings, "storage", **facts, ended=AT, unproven=True)
    for outcome in ("fail", "pass"):
        yield mail.fixity_notice(_check(outcome), settings)
    run = scanned(found_in("a.jpg", "Eicar"), "b.txt", stage=Stage.RECORDED, at=AT)
    yield mail.check_notice(UnreportedRun(7, "ark:/99999/fk4one", 1, CheckSummary.of(run)), settings)


def _check(outcome: str) -> PreservationEvent:
    file = DamagedFile(path="a.jpg", version=1, what="other bytes", remedy="restore the file from a copy")
    return PreservationEvent(
        id=7,
        ark="ark:/99999/fk4one",
        type="fixity check",
        at=AT,
        agent="arkline",
        outcome=outcome,
        damaged=1,
        files=(file,),
        reported=None,
    )


def _shown(mail: EmailMessage) -> Iterator[str]:
    for name in ("From", "To", "Subject", "Date", "Auto-Submitted", "Message-ID", "In-Reply-To"):
        if name in mail:
            yield f"{name}: {mail[name]}"
    for form in ("plain", "html"):
        if part := mail.get_body((form,)):
            yield f"-- {form}\n{part.get_content()}"
