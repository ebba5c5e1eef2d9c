"""The metrics: real values of a real record, in the format that Prometheus reads."""

import json
import re
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families

from entrypoints.web.metrics import ArklineCollector, RequestMetrics, exposition
from operations.board.board import Board
from operations.board.values import EVERYTHING, BatchSearch
from operations.site import Site
from pipeline.outcome import Deposited, WaitKind, WaitsFor
from pipeline.records import Batch, StatusReport, now
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind, JobState
from tests.support import cli, planting
from tests.support.boards import requests_of, until
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session
from zkstate.fleet import holds, notes
from zkstate.fleet.holds import Hold
from zkstate.fleet.notes import FixityStatus, LastAudit
from zkstate.fleet.scheduled import Sweep
from zkstate.queue.depth import depths
from zkstate.record import batches, jobs, record
from zkstate.record.batches import BatchMove
from zkstate.record.record import Lock

Samples = dict[tuple[str, ...], float]
NO_REDIS = {"ARKLINE_BROKER_URL": "redis://127.0.0.1:1/0"}
"""Nobody listens there, so that no test waits for the answers of workers."""

STOP_SECONDS = 5.0
"""Within which the exporter stops on a busy machine; it takes less than one on an idle one."""

PROJECT = Path(__file__).parents[2]
MONITORING = PROJECT / "deploy" / "monitoring"

FORBIDDEN_LABELS = {"jid", "bid", "host", "ark", "user", "owner"}


@pytest.fixture
def alone(settings: Settings) -> Settings:
    """Settings without Redis."""
    return settings.model_copy(update={"broker_url": NO_REDIS["ARKLINE_BROKER_URL"]})


@pytest.fixture
def board(session: Session, settings: Settings) -> Iterator[Board]:
    opened = Board.open(session)
    assert opened.wait_filled(30)
    yield opened
    opened.close()


def samples(source: ArklineCollector) -> Samples:
    """(name, values of the labels in the order of their names) -> value."""
    text = exposition(source).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_have_the_numbers_of_the_record(session: Session, settings: Settings, board: Board) -> None:
    _, jids = planting.split_batch(session, 3)
    planting.apply_event(session, jobs.load(session, jids[0]), Event.FAIL, FailureKind.CONTENT)
    holds.place(session, Hold(by="ann"), "demo")
    until(board, lambda: bool(board.failures(EVERYTHING) and board.stops(EVERYTHING).collections))

    values = samples(ArklineCollector(board, Site(settings, session)))

    assert values["arkline_jobs", "pending"] == 2
    assert values["arkline_collection_jobs", "demo", "failed"] == 1
    assert values["arkline_failed_jobs", "content"] == 1
    assert values["arkline_batches", "processing"] == 1
    assert values["arkline_collection_on_hold", "demo"] == 1
    assert values["arkline_queue_paused",] == 0
    assert values["arkline_zookeeper_up",] == values["arkline_broker_up",] == 1
    assert values["arkline_beats",] == 0
    assert values["arkline_workers", "download"] == 0
    assert values["arkline_callbacks_owed",] == 1
    assert values["arkline_in_flight_limit",] == settings.in_flight


def test_moves_and_durations_are_counted_by_event(session: Session, alone: Settings, board: Board) -> None:
    job = planting.one_job(session)
    planting.apply_event(session, job, Event.ACQUIRE)
    until(board, lambda: bool(board.tally().moves))

    values = samples(ArklineCollector(board, Site(alone, session)))

    assert values["arkline_job_moves_total", "acquire", "pending", "estimating"] == 1
    assert values["arkline_job_state_duration_seconds_count", "acquire", "pending"] == 1
    assert values["arkline_feed_events_total",] >= 2


def test_a_queue_has_what_its_workers_could_begin_with_and_what_they_have(
    session: Session, alone: Settings, board: Board
) -> None:
    _, (waits, begins, runs, *_) = planting.split_batch(session, 6)
    batches.submit(session, planting.submission())
    for jid in (waits, begins, runs):
        planting.apply_event(session, jobs.load(session, jid), Event.ACQUIRE)
    later = WaitsFor(kind=WaitKind.RETRY)
    held = planting.acquire(session, jobs.load(session, waits))
    record.hand_back(session, held, "test", delay=60, waits_for=later)
    planting.acquire(session, jobs.load(session, runs))
    until(board, lambda: board.counts(EVERYTHING)[JobState.PENDING] == 3)

    few = alone.model_copy(update={"in_flight": 4})
    values = samples(ArklineCollector(board, Site(few, session)))

    # two of the three places are taken: one that waits for a retry takes none
    assert values["arkline_queue_waiting", "io"] == 1 + 2
    assert values["arkline_queue_working", "io"] == 1
    assert values["arkline_queue_waiting", "split"] == 1
    assert values["arkline_queue_working", "split"] == values["arkline_queue_waiting", "download"] == 0
    assert 0 <= values["arkline_queue_oldest_age_seconds", "io"] < 60
    assert ("arkline_queue_oldest_age_seconds", "download") not in values
    holds.place(session, Hold(by="ann"))
    values = samples(ArklineCollector(board, Site(few, session)))
    assert values["arkline_queue_waiting", "io"] == 1


def test_the_depth_of_queues_costs_two_reads_for_each_job_in_progress_and_open_batch(
    session: Session, settings: Settings
) -> None:
    def reads() -> int:
        before = requests_of(session)
        depths(session, settings.in_flight)
        return requests_of(session) - before

    empty = reads()
    _, jids = planting.split_batch(session, 50)
    pending = reads()
    for jid in jids[:5]:
        planting.apply_event(session, jobs.load(session, jid), Event.ACQUIRE)

    assert pending - empty == 2  # the batch is open
    assert reads() - pending == 2 * 5


def test_completions_retries_and_reports_are_counted(session: Session, alone: Settings, board: Board) -> None:
    _, (completed, tried_again) = planting.split_batch(session, 2)
    planting.complete(session, jobs.load(session, completed))
    estimating = planting.apply_event(session, jobs.load(session, tried_again), Event.ACQUIRE)
    waits = WaitsFor(kind=WaitKind.RETRY)
    record.hand_back(session, planting.acquire(session, estimating), "test", delay=60, waits_for=waits)
    until(board, lambda: bool(board.tally().retries and board.tally().completions.total))

    values = samples(ArklineCollector(board, Site(alone, session)))

    assert values["arkline_job_duration_seconds_count",] == 1
    assert values["arkline_job_retries_total", "estimating"] == 1


def test_jobs_that_a_sweep_dispatches_again_are_counted_for_the_whole_fleet(
    session: Session, alone: Settings, board: Board
) -> None:
    for _ in range(2):
        with single_flight(session, "sweep") as clock:
            assert clock is not None
            sweep = Sweep(session, clock)
            sweep.count_redispatch("downloading")
            sweep.save()

    values = samples(ArklineCollector(board, Site(alone, session)))

    assert values["arkline_job_redispatches_total", "downloading"] == 2


def test_the_deposits_of_a_batch_are_counted_with_its_report_and_what_an_update_adds(
    session: Session, alone: Settings, board: Board
) -> None:
    batch = planting.batch_in(session, BatchState.REPORTING)
    until(board, lambda: status_of(board, batch) is BatchState.REPORTING)
    batch = report(session, batch, Event.FAIL, Deposited(files=2, bytes=10))
    until(board, lambda: bool(board.tally().deposited))
    batch = batches.move(session, batch, BatchMove(Event.UPDATE_REPORT, "ann", lock=Lock.FREE))
    until(board, lambda: status_of(board, batch) is BatchState.UPDATE_REPORTING)

    report(session, batch, Event.FAIL, Deposited(files=3, bytes=25))
    until(board, lambda: board.tally().deposited["demo"].files == 3)

    values = samples(ArklineCollector(board, Site(alone, session)))
    assert values["arkline_deposited_files_total", "demo"] == 3
    assert values["arkline_deposited_bytes_total", "demo"] == 25


def status_of(board: Board, batch: Batch) -> BatchState | None:
    rows = board.batches(EVERYTHING, BatchSearch(), 10).rows
    return next((row.status for row in rows if row.bid == batch.bid), None)


def report(session: Session, batch: Batch, event: Event, deposited: Deposited) -> Batch:
    acquired = batches.acquire(session, record.ticket(batch), "test")
    request = BatchMove(event, "test", report=StatusReport(), lock=Lock.MINE, deposited=deposited)
    return batches.move(session, acquired, request)


def test_the_last_audit_and_the_files_read_again_are_numbers_of_the_whole_fleet(
    session: Session, settings: Settings, board: Board
) -> None:
    assert ("arkline_audit_findings",) not in samples(ArklineCollector(board, Site(settings, session)))
    ended = now()
    notes.AUDIT.publish(session, LastAudit(at=ended - timedelta(days=1), findings=7))
    notes.AUDIT.publish(session, LastAudit(at=ended, findings=2))
    notes.note_fixity(session, FixityStatus(files_intact=40, files_damaged=1))

    values = samples(ArklineCollector(board, Site(settings, session)))

    assert values["arkline_audit_findings",] == 2
    assert values["arkline_audit_last_run_timestamp_seconds",] == ended.timestamp()
    assert values["arkline_custody_files_total", "intact"] == 40
    assert values["arkline_custody_files_total", "damaged"] == 1
    assert {key[1] for key in values if key[0] == "arkline_callbacks_total"} == {"delivered", "failed"}


def test_uploads_are_active_while_their_bytes_arrive() -> None:
    requests_of_process = RequestMetrics(lambda: 0)

    with requests_of_process.receiving():
        assert b"arkline_uploads_active 1.0" in requests_of_process.exposition()

    assert b"arkline_uploads_active 0.0" in requests_of_process.exposition()


def test_no_label_names_a_job_a_host_or_a_person(session: Session, alone: Settings, board: Board) -> None:
    planting.job_in(session, JobState.FAILED)

    text = exposition(ArklineCollector(board, Site(alone, session))).decode()

    families = list(text_string_to_metric_families(text))
    labels = {name for family in families for sample in family.samples for name in sample.labels}
    assert not labels & FORBIDDEN_LABELS
    assert all(family.name.startswith("arkline_") and family.documentation for family in families)


def test_a_server_that_is_away_makes_its_numbers_absent(
    session: Session, alone: Settings, board: Board
) -> None:
    values = samples(ArklineCollector(board, Site(alone, session)))

    assert values["arkline_broker_up",] == 0
    assert not any(name == "arkline_workers" for name, *_ in values)
    assert values["arkline_zookeeper_up",] == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_exporter_serves_metrics_until_a_signal_stops_it(
    session: Session, settings: Settings, number: signal.Signals, code: int
) -> None:
    planting.one_job(session)
    with cli.start(settings, "exporter", "--port", "0", **NO_REDIS) as process:
        assert process.stdout is not None
        address = re.search(r"http://[^;]+", process.stdout.readline())
        assert address is not None

        answer = requests.get(address[0], timeout=30)

        assert answer.headers["Content-Type"].startswith("text/plain")
        assert 'arkline_jobs{state="pending"}' in answer.text
        process.send_signal(number)
        began = time.monotonic()
        assert process.wait(20) == code
        assert time.monotonic() - began < STOP_SECONDS


def test_an_exporter_that_starts_without_zookeeper_says_so_and_counts_nothing(settings: Settings) -> None:
    away = {**NO_REDIS, "ARKLINE_ZK_HOSTS": "127.0.0.1:1"}
    with cli.start(settings, "exporter", "--port", "0", **away) as process:
        assert process.stdout is not None
        address = re.search(r"http://[^;]+", process.stdout.readline())
        assert address is not None

        lines = requests.get(address[0], timeout=30).text.splitlines()

        assert {"arkline_zookeeper_up 0.0", "arkline_broker_up 0.0"} <= set(lines)
        assert not [line for line in lines if line.startswith(("arkline_jobs{", "arkline_queue_paused"))]


def test_every_query_of_rules_and_dashboard_names_an_existing_metric(
    session: Session, settings: Settings, board: Board
) -> None:
    settings.working.mkdir(parents=True)
    settings.storage.mkdir(parents=True)
    notes.AUDIT.publish(session, LastAudit(at=now(), findings=0))
    of_requests = RequestMetrics(lambda: 0).exposition()
    text = (exposition(ArklineCollector(board, Site(settings, session))) + of_requests).decode()
    existing = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    rules = (MONITORING / "arkline.rules.yml").read_text()
    panels = json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]
    queries = [
        *(rule["expr"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]),
        *(target["expr"] for panel in panels for target in panel["targets"]),
    ]

    named = {name.removesuffix("_bucket") for query in queries for name in re.findall(r"arkline_\w+", query)}

    assert named - existing == set()
    page = (PROJECT / "docs/operators/monitoring.md").read_text()
    assert {name for name in existing if name not in page} == set()
    traced = {"arkline_traces_total"}  # where ARKLINE_OTLP_ENDPOINT is set
    assert set(re.findall(r"`(arkline_\w+)`", page)) - existing == traced
