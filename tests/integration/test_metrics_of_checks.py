"""Files are counted by what checks found in them: of a reported batch, and of stored versions."""

from collections.abc import Iterator

import pytest

from entrypoints.web.metrics import ArklineCollector
from operations.board.board import Board
from operations.board.values import EVERYTHING, BatchSearch
from operations.site import Site
from pipeline.checks import CheckedFiles, CheckRun, CheckSummary, CheckVerdict
from pipeline.outcome import Done
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind, JobState
from tasks.app import make_context
from tasks.batch import REPORT
from tasks.worker_context import WorkerContext
from tests.integration.test_metrics import NO_REDIS, samples
from tests.support import planting
from tests.support.attempts import work_on
from tests.support.boards import until
from tests.support.checks import found_in, scanned
from zkstate.connection.session import Session
from zkstate.fleet import notes
from zkstate.fleet.notes import RepeatedCheck
from zkstate.record import batches, jobs, record
from zkstate.record.batches import BatchMove
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

TOO_LARGE = found_in("c.iso", "too-large", CheckVerdict.UNCHECKED)
COUNTED = "arkline_checked_files_total"


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    made = make_context(settings)
    made.session()
    yield made
    made.drop_session()


@pytest.fixture
def board(session: Session) -> Iterator[Board]:
    opened = Board.open(session)
    assert opened.wait_filled(30)
    yield opened
    opened.close()


def checked(session: Session, jid: str, run: CheckRun, event: Event = Event.SUCCEED) -> Job:
    """The job has come to processing, where a worker checks its files, with this end."""
    job = jobs.load(session, jid)
    while job.status.status is not JobState.PROCESSING:
        event_before = Event.ACQUIRE if job.status.status is JobState.PENDING else Event.SUCCEED
        job = planting.apply_event(session, job, event_before)
    done = Done(checks=(CheckSummary.of(run),))
    kind = FailureKind.CONTENT if event is Event.FAIL else None
    return jobs.move(session, planting.acquire(session, job), JobMove(event, "w", done=done, kind=kind))


def reported(session: Session, context: WorkerContext, board: Board, bid: str, state: BatchState) -> None:
    """The board has seen that the batch is to be reported, and a worker reports it."""

    def seen() -> bool:
        rows = board.batches(EVERYTHING, BatchSearch(), 10).rows
        return any((row.bid, row.status) == (bid, state) for row in rows)

    until(board, seen)
    reports = sum(board.tally().reports.values())
    work_on(context, record.ticket(batches.load(session, bid)), REPORT)
    until(board, lambda: sum(board.tally().reports.values()) > reports)


def test_the_files_of_a_batch_are_counted_with_its_report_and_not_again_with_an_update(
    session: Session, settings: Settings, context: WorkerContext, board: Board
) -> None:
    site = Site(settings.model_copy(update={"broker_url": NO_REDIS["ARKLINE_BROKER_URL"]}), session)
    bid, (good, bad, unchecked) = planting.split_batch(session, 3)
    planting.complete(session, checked(session, good, scanned("a.txt", TOO_LARGE)))
    planting.complete(session, jobs.load(session, unchecked))
    stopped = checked(session, bad, scanned("a.txt", found_in("b.exe", "Eicar")), Event.FAIL)
    assert batches.finish_if_ended(session, bid, "test") is not None
    reported(session, context, board, bid, BatchState.REPORTING)
    expected = {("clamav", "fine"): 2.0, ("clamav", "found"): 1.0, ("clamav", "unchecked"): 1.0}

    first = counted(board, site)
    replaced = planting.apply_event(session, stopped, Event.RESUME)
    planting.complete(session, checked(session, replaced.jid, scanned("a.txt", "b.txt")))
    failed = batches.load(session, bid)
    batches.move(session, failed, BatchMove(Event.UPDATE_REPORT, "ann", lock=Lock.FREE))
    reported(session, context, board, bid, BatchState.UPDATE_REPORTING)

    assert first == expected
    assert counted(board, site) == expected | {("clamav", "fine"): 3.0}
    # what another process counts from, when it starts
    sums = (CheckedFiles(check="clamav", fine=3, found=0, unchecked=1),)
    assert batches.load(session, bid).status.checked == sums


def counted(board: Board, site: Site, name: str = COUNTED) -> dict[tuple[str, ...], float]:
    """(check, verdict) -> files."""
    values = samples(ArklineCollector(board, site))
    return {tuple(labels): value for (of, *labels), value in values.items() if of == name}


def test_the_files_that_the_schedule_checks_again_are_numbers_of_the_whole_fleet(
    session: Session, settings: Settings, board: Board
) -> None:
    notes.note_repeated_checks(session, (RepeatedCheck(check="pronom", version="v2", fine=40, unchecked=2),))

    again = counted(board, Site(settings, session), "arkline_rechecked_files_total")

    assert again == {("pronom", "fine"): 40, ("pronom", "found"): 0, ("pronom", "unchecked"): 2}
