"""The archive has each report exactly as it was mailed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from email.message import EmailMessage
from pathlib import Path

import pytest
import yaml

from operations.jobs.batch_view import report, sent_texts
from operations.reasons import Reason
from operations.site import Site
from operations.verbs.verbs import act, stop_batch
from operations.why.why import why
from pipeline.errors import Action
from pipeline.inventory.archive import sent_reports
from pipeline.notify.mail import Mailer
from pipeline.notify.report_mail import report_text
from pipeline.outcome import system
from pipeline.records import Batch
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from pipeline.steps.context import Clients
from tasks import retention
from tasks.app import make_context
from tasks.batch import REPORT
from tasks.worker_context import WorkerContext
from tests.component.test_smtp import Serve, serve  # noqa: F401 - a fixture
from tests.integration.test_retention import later
from tests.support import planting
from tests.support.attempts import work_on
from tests.support.operators import ANN
from tests.support.outbox import letters
from tests.support.step_context import collection
from zkstate.connection.session import Session
from zkstate.record import batches, jobs, record
from zkstate.record.journal import Stamp


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    made = make_context(settings)
    yield made
    made.drop_session()


def reported_batch(session: Session, context: WorkerContext) -> Batch:
    """Of its three jobs two completed, and an operator deleted the failed one; its report was sent."""
    context.session()  # gives the three stores their deployment id, as a worker does that starts first
    bid, jids = planting.split_batch(session, 3)
    planting.apply_event(session, jobs.load(session, jids[0]), Event.FAIL)
    act(Site(context.settings, session), ANN, jids[0], Event.DELETE)
    for jid in jids[1:]:
        jobs.clean_up(session, planting.complete(session, jobs.load(session, jid)))
    reporting = batches.finish_if_ended(session, bid, "test")
    assert reporting is not None
    work_on(context, record.ticket(reporting), REPORT)
    return batches.load(session, bid)


class Killed(BaseException):
    """The process ends here."""


@dataclass
class FaultyMailer:
    mailer: Mailer
    sends: bool
    fault: BaseException

    def send(self, message: EmailMessage) -> str:
        if self.sends:
            self.mailer.send(message)
        raise self.fault


class FaultyContext(WorkerContext):
    def __init__(self, like: WorkerContext, fault: BaseException, *, sends: bool) -> None:
        super().__init__(like.settings, like.app)
        self._fault, self._sends = fault, sends

    def clients(self) -> Clients:
        clients = super().clients()
        return replace(clients, mailer=FaultyMailer(clients.mailer, self._sends, self._fault))


def killed_at_the_mail(context: WorkerContext, batch: Batch, *, sends: bool) -> None:
    with pytest.raises(Killed):
        work_on(FaultyContext(context, Killed(), sends=sends), record.ticket(batch), REPORT)


def a_batch_to_report(session: Session, context: WorkerContext) -> tuple[Batch, str]:
    """One of its two jobs completed, the other failed; and the failed job."""
    context.session()
    bid, (failed, other) = planting.split_batch(session, 2)
    planting.apply_event(session, jobs.load(session, failed), Event.FAIL)
    jobs.clean_up(session, planting.complete(session, jobs.load(session, other)))
    reporting = batches.finish_if_ended(session, bid, "test")
    assert reporting is not None
    return reporting, failed


def test_the_batch_says_which_recipients_of_its_report_the_mail_server_refused(
    session: Session,
    settings: Settings,
    tmp_path: Path,
    serve: Serve,  # noqa: F811
) -> None:
    postbox, port = serve()
    postbox.refuse["bob@example.org"] = "550 no such user"
    changes = {"profiles": tmp_path / "profiles", "smtp_host": "127.0.0.1", "smtp_port": port}
    context = make_context(settings.model_copy(update=changes))
    collection(context.settings, notification=["ann@example.org", "bob@example.org"])
    batch, _ = a_batch_to_report(session, context)

    work_on(context, record.ticket(batch), REPORT)
    context.drop_session()

    reported = batches.load(session, batch.bid)
    assert [sent.rcpt_tos for sent in postbox.taken] == [["ann@example.org"]]
    assert reported.status.status is BatchState.FAILED
    assert "refused some recipients: bob@example.org (550 no such user)" in reported.status.message
    assert reported.history[-1].message == reported.status.message
    assert reported.report is not None
    assert reported.report.mailed


@pytest.mark.parametrize("sends", [False, True])
def test_a_report_whose_worker_was_killed_before_or_after_the_mail_is_sent_and_kept_the_same(
    session: Session, settings: Settings, context: WorkerContext, sends: bool
) -> None:
    batch, _ = a_batch_to_report(session, context)
    killed_at_the_mail(context, batch, sends=sends)
    assert len(mailed(settings)) == sends
    (kept,) = sent_reports(context.clients().inventory, batch.bid)

    work_on(context, record.ticket(batches.load(session, batch.bid)), REPORT)

    assert mailed(settings) == [kept.text]
    assert sent_reports(context.clients().inventory, batch.bid) == (kept,)
    status = batches.load(session, batch.bid).status
    assert (status.reports, status.deposited) == (1, planting.DEPOSITED)


def test_a_job_that_changes_after_its_report_was_sent_changes_no_report_and_is_in_the_update(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    batch, failed = a_batch_to_report(session, context)
    killed_at_the_mail(context, batch, sends=True)
    (first,) = mailed(settings)
    act(Site(context.settings, session), ANN, failed, Event.DELETE)

    work_on(context, record.ticket(batches.load(session, batch.bid)), REPORT)
    told = batches.load(session, batch.bid)
    assert mailed(settings) == [first]
    assert told.status.status is BatchState.FAILED
    updating = planting.apply_batch_event(session, told, Event.UPDATE_REPORT)
    work_on(context, record.ticket(updating), REPORT)

    first_again, update = mailed(settings)
    assert first_again == first
    assert "1 of 2 objects completed, 1 failed" in first
    assert "1 of 2 objects completed, 1 deleted" in update
    assert [sent.text for sent in sent_reports(context.clients().inventory, batch.bid)] == [first, update]


def test_a_report_that_an_operator_ended_after_its_mail_keeps_its_number(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    batch, failed = a_batch_to_report(session, context)
    killed_at_the_mail(context, batch, sends=True)
    (first,) = mailed(settings)
    site = Site(context.settings, session)
    stop_batch(site, Stamp.of(ANN), batch.bid, dry_run=False)
    act(site, ANN, failed, Event.DELETE)

    stopped = batches.load(session, batch.bid)
    updating = planting.apply_batch_event(session, stopped, Event.UPDATE_REPORT)
    work_on(context, record.ticket(updating), REPORT)

    assert mailed(settings)[0] == first
    assert len(mailed(settings)) == 2
    sent = sent_reports(context.clients().inventory, batch.bid)
    assert [(report.number, report.text) for report in sent] == list(enumerate(mailed(settings), 1))


def test_a_batch_whose_removal_was_killed_after_the_archive_keeps_its_reports(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    batch = reported_batch(session, context)
    (mail,) = mailed(settings)
    retention.archive(session, batch, context.clients(), by="test", reason="")
    assert sent_texts(Site(settings, session), ANN, batch.bid) == ()

    retention.remove_old_batches(session, later(session, settings.retention + 60), context.clients())

    assert sent_texts(Site(settings, session), ANN, batch.bid) == (mail,)
    assert report(Site(settings, session), ANN, batch.bid).counts.deleted == 1


def test_a_report_that_the_mail_server_refused_is_sent_by_update_report(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    batch, _ = a_batch_to_report(session, context)
    refusing = FaultyContext(context, system("550 no such mailbox"), sends=False)
    work_on(refusing, record.ticket(batch), REPORT)
    refusing.drop_session()
    refused = batches.load(session, batch.bid)
    assert refused.status.status is BatchState.FAILED
    assert mailed(settings) == []
    advice = why(Site(context.settings, session), ANN, batch.bid)
    assert Reason.REPORT_NOT_SENT in {obstacle.reason for obstacle in advice.obstacles}
    assert Action.UPDATE_REPORT in {remedy.action for remedy in (*advice.remedies, *advice.afterwards)}

    updating = planting.apply_batch_event(session, refused, Event.UPDATE_REPORT)
    work_on(context, record.ticket(updating), REPORT)

    (mail,) = mailed(settings)
    assert "1 of 2 objects completed, 1 failed" in mail


def mailed(settings: Settings) -> list[str]:
    return [report_text(mail) for mail in letters(settings)]


def test_a_job_that_an_operator_fails_is_reported_with_the_reason_and_without_the_account(
    session: Session, context: WorkerContext, site: Site
) -> None:
    context.session()
    job = planting.job_in(session, JobState.DOWNLOADING)

    act(Site(context.settings, session), ANN, job.jid, Event.FAIL, reason="because")

    (failed,) = report(site, ANN, job.bid).failed
    assert failed.message == "our staff stopped this object: because"
    assert failed.advice == "Ask our staff before you submit this object again."


def test_after_retention_the_report_is_the_one_that_was_mailed(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    batch = reported_batch(session, context)
    assert batch.status.status is BatchState.COMPLETED
    (mail,) = mailed(settings)
    assert "2 of 3 objects completed, 1 deleted" in mail
    assert sent_texts(Site(settings, session), ANN, batch.bid) == ()

    retention.remove_old_batches(session, later(session, settings.retention + 60), context.clients())

    assert sent_texts(Site(settings, session), ANN, batch.bid) == (mail,)
    counts = report(Site(settings, session), ANN, batch.bid).counts
    assert (counts.total, counts.completed, counts.deleted) == (3, 2, 1)


def test_an_update_without_changes_is_neither_sent_nor_kept(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    _, (jid,) = planting.split_batch(session, 1)
    bid = jobs.load(session, jid).bid
    planting.apply_event(session, jobs.load(session, jid), Event.FAIL)
    reporting = batches.finish_if_ended(session, bid, "test")
    assert reporting is not None
    work_on(context, record.ticket(reporting), REPORT)
    batch = batches.load(session, bid)
    kept = sent_reports(context.clients().inventory, batch.bid)

    updating = planting.apply_batch_event(session, batch, Event.UPDATE_REPORT)
    work_on(context, record.ticket(updating), REPORT)

    assert sent_reports(context.clients().inventory, batch.bid) == kept
    assert len(mailed(settings)) == len(kept) == 1


def test_a_collection_without_mail_has_its_reports_in_the_archive(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    profile = yaml.safe_load((settings.profiles / "demo.yaml").read_text())
    silent = {"notification_suppression": "full", "confirmation_mail": False}
    folder = tmp_path / "silent"
    folder.mkdir()
    (folder / "demo.yaml").write_text(yaml.safe_dump({**profile, **silent}))
    context = make_context(settings.model_copy(update={"profiles": folder}))

    batch = reported_batch(session, context)
    (kept,) = sent_reports(context.clients().inventory, batch.bid)
    context.drop_session()

    assert mailed(settings) == []
    assert (kept.number, dict(kept.report)["counts"]["deleted"]) == (1, 1)
