"""Causes in the record, on the board and in what an operator is told; also of releases that record none."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from entrypoints.render.explanation import text
from operations.board.board import Board
from operations.board.values import EVERYTHING, FailureGroup, JobSearch
from operations.jobs.job_view import job_view, rows
from operations.site import Site
from operations.verbs.verbs import act, repair
from operations.why.why import why
from pipeline import causes
from pipeline.causes import FailureCause
from pipeline.errors import Action, Remedy
from pipeline.notify.batch_report import reported_job
from pipeline.outcome import StepFailed, content
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind, JobState
from tasks.app import make_context
from tasks.run import JOBS, StateWork
from tasks.scheduled import beat
from tasks.worker_context import WorkerContext
from tests.support import planting
from tests.support.attempts import work_on
from tests.support.operators import ANN
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.record import batches, jobs, record
from zkstate.record.batches import BatchMove
from zkstate.record.jobs import JobMove

CONTENT = FailureKind.CONTENT
UPLOADED = "upload:0123456789abcdef0123456789abcdef/readme.md"


def failed(
    session: Session,
    cause: FailureCause | None,
    message: str = "said so",
    kind: FailureKind = CONTENT,
    **facts: Any,
) -> Job:
    held = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING, **facts))
    return jobs.move(session, held, JobMove(Event.FAIL, "worker", message=message, kind=kind, cause=cause))


@pytest.fixture
def groups(session: Session) -> Iterator[Callable[[], tuple[FailureGroup, ...]]]:
    """The groups of a board on the record as it is at that moment."""
    opened: list[Board] = []

    def read() -> tuple[FailureGroup, ...]:
        opened.append(Board.open(session))
        assert opened[-1].wait_filled(30)
        return opened[-1].failures(EVERYTHING)

    yield read
    for board in opened:
        board.close()


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    opened = make_context(settings)
    yield opened
    opened.drop_session()


def test_fifty_digests_of_fifty_files_are_one_group_with_a_title_that_is_true_for_all(
    session: Session, groups: Callable[[], tuple[FailureGroup, ...]]
) -> None:
    for number in range(50):
        facts = {"declared": f"{number:032x}", "received": "0" * 32}
        failed(session, causes.DIGEST_DIFFERS(**facts), f"{number}.txt: the md5 digest is {number:032x}")
    failed(session, causes.SOURCE_ANSWERED(host="127.0.0.1:8000", status=404))

    often, once = groups()

    assert often.title == "50 objects: the digest of a file differs from the declared one"
    assert (often.code, often.owner, often.count, often.parameters) == ("digest-differs", "depositor", 50, {})
    assert often.to_act == "depositor"
    assert once.title == "1 object: the source 127.0.0.1:8000 answered 404"
    assert (once.template, once.host) == ("the source 127.0.0.1:8000 answered 404", "127.0.0.1:8000")
    assert once.parameters == {"host": "127.0.0.1:8000", "status": "404"}


def test_batches_that_failed_as_a_whole_are_counted_in_the_title(
    session: Session, groups: Callable[[], tuple[FailureGroup, ...]]
) -> None:
    cause = causes.MANIFEST_INVALID()
    for _ in range(2):
        batch = planting.acquired_batch(session)
        batches.move(session, batch, BatchMove(Event.FAIL, "worker", "line 1", CONTENT, cause=cause))

    (group,) = groups()
    failed(session, cause)
    (more,) = groups()

    assert (group.title, group.count) == ("2 batches: the manifest is not valid", 0)
    assert more.title == "1 object and 2 batches: the manifest is not valid"


def test_a_cause_is_kept_in_the_status_and_in_the_history_and_ends_with_the_failure(session: Session) -> None:
    cause = causes.SOURCE_ANSWERED(host="a.org", status=404)
    job = failed(session, cause)

    read = jobs.load(session, job.jid)
    resumed = planting.apply_event(session, read, Event.RESUME)

    assert (read.status.failure_cause, read.history[-1].cause) == (cause, cause)
    assert (resumed.status.cause, resumed.status.failure_cause) == (None, None)
    assert reported_job(read).cause == "source-answered"


def test_the_cause_of_a_batch_stays_while_its_report_is_sent_again(session: Session) -> None:
    cause = causes.MANIFEST_INVALID()
    batch = batches.move(
        session, planting.acquired_batch(session), BatchMove(Event.FAIL, "w", "line 1", CONTENT, cause=cause)
    )
    for event in (Event.SUCCEED, Event.FAIL, Event.UPDATE_REPORT):
        batch = planting.apply_batch_event(session, batch, event)

    assert batch.status.status is BatchState.UPDATE_REPORTING
    assert batches.load(session, batch.bid).status.failure_cause == cause


def test_a_failure_of_an_older_release_is_shown_with_its_message_and_guessed_by_nobody(
    session: Session, groups: Callable[[], tuple[FailureGroup, ...]]
) -> None:
    for number in range(3):
        failed(session, None, f"http://a.org/{number}: the source answered 404 Not Found")

    (group,) = groups()

    assert group.title == "3 objects: the cause was not recorded"
    assert (group.code, group.owner, group.host) == ("not-recorded", "depositor", "")
    assert "the source answered 404" in group.message


def test_a_cause_that_an_older_worker_left_beside_its_own_failure_is_not_that_failures(
    session: Session, groups: Callable[[], tuple[FailureGroup, ...]]
) -> None:
    """A release before 0.4.0 preserves unknown fields of a status when it fails the resumed job."""
    job = failed(session, causes.DIGEST_DIFFERS(), "the digest differs")
    path = paths.job_status(job.jid)
    old = json.loads(session.get(path)[0])
    session.zk.set(path, json.dumps(old | {"message": "a disk broke", "kind": "system"}).encode())

    read = jobs.load(session, job.jid)
    (group,) = groups()

    assert (read.status.cause is not None, read.status.failure_cause) == (True, None)
    assert (group.code, group.kind, group.message) == ("not-recorded", FailureKind.SYSTEM, "a disk broke")


def test_a_person_who_stops_or_rejects_an_object_is_its_cause(session: Session, settings: Settings) -> None:
    site = Site(settings, session)
    working = planting.job_in(session, JobState.DOWNLOADING)
    reviewed = planting.job_in(session, JobState.REVIEW)

    act(site, ANN, working.jid, Event.FAIL, reason="wrong box", feeding=False)
    act(site, ANN, reviewed.jid, Event.REJECT, reason="page 3", feeding=False)

    assert jobs.load(session, working.jid).status.failure_cause == causes.STOPPED()
    assert jobs.load(session, reviewed.jid).status.failure_cause == causes.REJECTED()


def test_an_object_that_kills_its_workers_has_that_cause(session: Session, context: WorkerContext) -> None:
    job = planting.job_in(session, JobState.DOWNLOADING)
    for _ in range(context.settings.max_redispatches):
        record.redispatch(session, jobs.load(session, job.jid), lost=True)

    beat._fail_exhausted(context, session, job.jid)

    assert jobs.load(session, job.jid).status.failure_cause == causes.WORKER_LOST(state="downloading")


def test_a_job_that_moves_before_the_sweep_fails_it_has_killed_no_worker(
    session: Session, context: WorkerContext
) -> None:
    job = planting.job_in(session, JobState.DOWNLOADING)
    for _ in range(context.settings.max_redispatches):
        ticket = record.redispatch(session, jobs.load(session, job.jid), lost=True)
    held = jobs.acquire(session, ticket, "a worker that had the message")
    jobs.move(session, held, JobMove(Event.SUCCEED, "worker"))

    beat._fail_exhausted(context, session, job.jid)

    assert jobs.load(session, job.jid).status.status is JobState.PROCESSING


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (content("odd"), causes.OTHER()),
        (content("odd").because(causes.NO_FILE()), causes.NO_FILE()),
    ],
)
def test_a_worker_records_the_cause_of_a_failure_and_of_one_without_a_code_that_it_has_none(
    session: Session, context: WorkerContext, failure: StepFailed, cause: FailureCause
) -> None:
    def do(_: Any) -> Job | None:
        raise failure

    job = planting.job_in(session, JobState.DOWNLOADING)
    state = JOBS[JobState.DOWNLOADING]
    work_on(context, record.ticket(job), StateWork(state.load, do, state.fail))

    assert jobs.load(session, job.jid).status.failure_cause == cause


def test_wrong_content_of_an_upload_is_corrected_and_deposited_again_before_it_is_resumed(
    session: Session, settings: Settings
) -> None:
    site = Site(settings, session)
    cause = causes.DIGEST_DIFFERS(declared="0" * 32)
    uploaded = failed(session, cause, payload_url=UPLOADED)
    fetched = failed(session, cause)

    told, other = why(site, ANN, uploaded.jid), why(site, ANN, fetched.jid)

    assert told.remedies == (Remedy(Action.SUBMIT_AGAIN, uploaded.bid), Remedy(Action.DELETE, uploaded.jid))
    assert (told.failure_cause, told.resume_helps) == (cause, False)
    assert "arkline resume" not in text(told)
    assert "arkline submit PATH --profile NAME: correct the content" in text(told)
    assert other.remedies == (Remedy(Action.RESUME, fetched.jid),)
    assert job_view(site, ANN, uploaded.jid).failure_cause == cause


def test_of_a_batch_whose_uploads_were_wrong_no_resume_is_advised(
    session: Session, settings: Settings
) -> None:
    def advised(**facts: Any) -> tuple[str, set[str]]:
        bid = failed(session, causes.DIGEST_DIFFERS(declared="0" * 32), **facts).bid
        ended = batches.finish_if_ended(session, bid, "test")
        assert ended is not None
        planting.apply_batch_event(session, ended, Event.FAIL)
        return bid, {str(remedy.action) for remedy in why(Site(settings, session), ANN, bid).remedies}

    uploaded, of_upload = advised(payload_url=UPLOADED)
    _, of_source = advised()

    assert "resume-batch" in of_source
    assert "resume-batch" not in of_upload
    assert Remedy(Action.SUBMIT_AGAIN, uploaded) in why(Site(settings, session), ANN, uploaded).remedies


def test_a_manifest_whose_files_are_fetched_is_corrected_at_the_source(
    session: Session, settings: Settings
) -> None:
    job = failed(
        session,
        causes.SOURCE_ANSWERED(host="a.org", status=404),
        payload_url=UPLOADED,
        payload_type="object_manifest",
    )

    assert why(Site(settings, session), ANN, job.jid).remedies == (Remedy(Action.RESUME, job.jid),)


def test_jobs_are_found_by_the_id_of_their_cause(session: Session) -> None:
    wanted = [failed(session, causes.NO_FILE()).jid for _ in range(2)]
    failed(session, causes.NAME_REFUSED())
    board = Board.open(session)
    assert board.wait_filled(30)
    group = next(one for one in board.failures(EVERYTHING) if one.code == "no-file")

    found = rows(session, board, EVERYTHING, JobSearch(cause=group.id), 10)
    board.close()

    assert sorted(row.jid for row in found.rows) == sorted(wanted)
    listed = json.loads(found.model_dump_json(warnings="error"))["rows"]
    assert [row["failure_cause"] for row in listed] == [{"code": "no-file", "parameters": {}}] * 2


def test_a_lost_status_is_derived_with_the_cause_of_the_history(session: Session, settings: Settings) -> None:
    job = failed(session, causes.NO_FILE())
    session.zk.set(paths.job_status(job.jid), b"{")

    repair(Site(settings, session), ANN, job.jid, feeding=False)

    assert jobs.load(session, job.jid).status.failure_cause == causes.NO_FILE()
