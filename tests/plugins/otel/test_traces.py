"""Traces of jobs: made from real histories, received and decoded as a collector does."""

import json
import time
from collections.abc import Iterator

import pytest
import requests

from operations.board.board import Board
from pipeline.outcome import WaitKind, WaitsFor
from pipeline.records import Job, trace_id
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind, JobState
from plugins.otel import otlp
from plugins.otel.traces import TraceExport, spans_of
from tests.servers.otlp import Collector, ReceivedSpan, collecting
from tests.support import cli, planting
from zkstate.connection.session import Session
from zkstate.record import jobs, record

SECONDS = 30


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def export(session: Session, settings: Settings, collector: Collector) -> Iterator[TraceExport]:
    board = Board.open(session)
    assert board.wait_filled(SECONDS)
    export = TraceExport.start(board, session, otlp.sender(collector.url))
    yield export
    export.close()
    board.close()


def whole(spans: list[ReceivedSpan]) -> list[ReceivedSpan]:
    return [span for span in spans if not span.parent_id]


def test_a_completed_job_is_one_trace_with_the_times_of_its_history(
    session: Session, export: TraceExport, collector: Collector
) -> None:
    job = planting.complete(session, planting.one_job(session))

    spans = collector.wait_for_jobs(1)

    history = jobs.load(session, job.jid).history
    [root] = whole(spans)
    assert {span.trace_id for span in spans} == {f"{trace_id(job):032x}"}
    assert {span.parent_id for span in spans} == {"", root.span_id}
    assert [span.name for span in spans if span.parent_id] == [entry.state for entry in history[:-1]]
    assert root.start // 1000 == round(history[0].at.timestamp() * 1e6)
    assert root.end // 1000 == round(history[-1].at.timestamp() * 1e6)
    assert root.service == "arkline"
    assert not any(span.failed for span in spans)
    assert root.attributes == {
        "arkline.bid": job.bid,
        "arkline.jid": job.jid,
        "arkline.collection": "demo",
        "arkline.outcome": "completed",
    }


def test_every_try_of_a_step_is_a_span(session: Session, export: TraceExport, collector: Collector) -> None:
    job = planting.apply_event(session, planting.one_job(session), Event.ACQUIRE)
    waits = WaitsFor(kind=WaitKind.RETRY)
    held = planting.acquire(session, job)
    job = record.hand_back(session, held, "test", message="the source is away", waits_for=waits)
    planting.complete(session, jobs.load(session, job.jid))

    spans = collector.wait_for_jobs(1)

    tries = [span for span in spans if span.name == JobState.ESTIMATING]
    assert [span.attributes["arkline.attempt"] for span in tries] == [1, 2]
    assert [span.attributes["arkline.outcome"] for span in tries] == ["retry", "succeed"]
    assert [span.failed for span in tries] == [True, False]
    assert tries[0].message == "the source is away"


def test_a_resumed_job_gets_further_spans_in_the_same_trace(
    session: Session, export: TraceExport, collector: Collector
) -> None:
    job = planting.apply_event(session, planting.one_job(session), Event.FAIL, FailureKind.SYSTEM)
    [failed] = whole(collector.wait_for_jobs(1))

    planting.complete(session, jobs.load(session, job.jid))
    spans = collector.wait_for_jobs(2)

    assert failed.failed
    assert failed.attributes["arkline.failure"] == "system"
    assert [root.attributes["arkline.outcome"] for root in whole(spans)] == ["failed", "completed"]
    assert len({span.trace_id for span in spans}) == 1
    assert len({span.span_id for span in spans}) == len(spans)


def test_a_job_that_has_not_ended_has_no_trace_yet(session: Session) -> None:
    job: Job = planting.one_job(session)

    assert spans_of(job) == ()


def test_a_collector_that_refuses_costs_a_counted_trace_and_no_more(
    session: Session, export: TraceExport, collector: Collector
) -> None:
    collector.status = 400
    planting.complete(session, planting.one_job(session))
    collector.wait_for_requests(1)
    deadline = time.monotonic() + SECONDS
    while not export.counts.dropped and time.monotonic() < deadline:
        time.sleep(0.02)

    collector.status = 200
    planting.complete(session, planting.one_job(session))
    collector.wait_for_jobs(1)

    assert export.counts.dropped == 1


def test_the_exporter_sends_traces_and_counts_them(
    session: Session, settings: Settings, collector: Collector
) -> None:
    away = {"ARKLINE_BROKER_URL": "redis://127.0.0.1:1/0", "ARKLINE_LOG_LEVEL": "ERROR"}
    with cli.start(
        settings, "exporter", "--port", "0", "--json", ARKLINE_OTLP_ENDPOINT=collector.url, **away
    ) as process:
        assert process.stdout is not None
        url = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
        while "arkline_board_following 1.0" not in requests.get(url, timeout=SECONDS).text:
            pass
        planting.complete(session, planting.one_job(session))
        collector.wait_for_jobs(1)

        deadline = time.monotonic() + SECONDS
        while True:
            text = requests.get(url, timeout=SECONDS).text
            if 'arkline_traces_total{outcome="sent"} 1.0' in text:
                break
            assert time.monotonic() < deadline, text
        assert 'arkline_traces_total{outcome="dropped"} 0.0' in text
