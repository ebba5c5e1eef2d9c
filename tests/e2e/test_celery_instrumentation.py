"""Sentry and OpenTelemetry's Celery instrumentation, unchanged, in workers that carry jobs and in others."""

import gzip
import json
import threading
from itertools import pairwise
from typing import Any

import pytest
from celery.states import RETRY

from pipeline.records import HistoryEntry
from pipeline.settings import Settings
from pipeline.states import JOB, JobState
from tests.e2e.test_celery_commands import FAILS_ONCE
from tests.e2e.test_task_events import deposited
from tests.servers.http_source import HttpSource
from tests.servers.otlp import Collector, ReceivedSpan, collecting
from tests.servers.receiver import Receiver, receiving
from tests.support import nightly
from tests.support.fleet import Fleet, job_reaches
from zkstate.connection.session import Session

CARRIED = ("",)
SENT = ("download", "control,split,io,process")
"""Queues of the workers: a job goes from one to the other and back, with a message each time."""

each_way = pytest.mark.parametrize(
    "queues", [pytest.param(CARRIED, id="carried"), pytest.param(SENT, id="sent", marks=nightly.case)]
)


def start_workers(fleet: Fleet, queues: tuple[str, ...], sentry: Receiver, collector: Collector) -> None:
    fleet.extra = {
        "SENTRY_DSN": f"http://key@127.0.0.1:{sentry.port}/1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
    }
    for number, served in enumerate(queues):
        only = ("-Q", served) if served else ()
        module = ("-I", "tests.support.instrumented")
        fleet.celery(f"worker{number}", "worker", "-c", "2", "-n", f"worker{number}@%h", *only, *module)


def errors(sentry: Receiver) -> list[dict[str, Any]]:
    """The events of the envelopes that were sent to Sentry."""
    found = []
    for request in sentry.received:
        raw = (
            gzip.decompress(request.raw) if request.headers.get("Content-Encoding") == "gzip" else request.raw
        )
        _, *items = raw.split(b"\n")
        for header, payload in pairwise(items):
            if header.startswith(b'{"type":"event"'):
                found.append(json.loads(payload))
    return found


def runs(spans: list[ReceivedSpan], jid: str) -> list[ReceivedSpan]:
    """The spans of the job's tasks, in their order."""
    own = [span for span in spans if str(span.attributes.get("messaging.message.id")).startswith(f"{jid}-")]
    return sorted((span for span in own if span.name.startswith("run/job.")), key=lambda span: span.start)


def worked_in(history: tuple[HistoryEntry, ...]) -> list[str]:
    return [f"run/{JOB.task(JobState(entry.state)).name}" for entry in history[:-1]]


@each_way
def test_a_step_that_fails_is_one_error_in_sentry_and_a_failed_span(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, queues: tuple[str, ...]
) -> None:
    with receiving() as sentry, collecting() as collector:
        start_workers(fleet, queues, sentry, collector)
        _, jid = deposited(session, settings, source.url("/missing.txt"))
        failed = job_reaches(session, jid, JobState.FAILED)
        sentry.wait_for_requests(1)
        fleet.stop()  # which sends what is left
        spans = runs(collector.spans, jid)
        (event,) = errors(sentry)
        assert "Traceback" not in fleet.logs()

    (error,) = event["exception"]["values"]
    assert (error["type"], error["value"]) == ("StateFailed", failed.status.message)
    last = failed.history[-2]
    assert event["tags"]["celery_task_id"] == f"{jid}-{failed.status.epoch - 1}-{last.state}"
    assert event["extra"]["celery-job"]["task_name"] == JOB.task(JobState(last.state)).name
    assert [span.name for span in spans] == worked_in(failed.history)
    assert [span.failed for span in spans] == [*(False for _ in spans[1:]), True]
    assert spans[-1].message == failed.status.message


@each_way
def test_a_hand_back_is_no_error_in_sentry_and_a_span_with_its_cause(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, queues: tuple[str, ...]
) -> None:
    with receiving() as sentry, collecting() as collector:
        start_workers(fleet, queues, sentry, collector)
        fleet.beat()  # which begins the second try
        _, jid = deposited(session, settings, source.put("/a.txt", b"a", **FAILS_ONCE))
        done = job_reaches(session, jid, JobState.COMPLETED)
        fleet.stop()
        spans = runs(collector.spans, jid)
        assert errors(sentry) == []

    handed_back = [span for span in spans if "celery.retry.reason" in span.attributes]
    assert {span.name for span in handed_back} == {"run/job.downloading"}
    assert {span.attributes["celery.state"] for span in handed_back} == {RETRY}
    assert all("500" in str(span.attributes["celery.retry.reason"]) for span in handed_back)
    assert not any(span.failed for span in spans)
    others = [span for span in spans if span not in handed_back]
    assert [span.name for span in others] == list(dict.fromkeys(worked_in(done.history)))
    assert len({span.trace_id for span in spans}) == 1 + len(handed_back), "the sweep begins another trace"


def test_a_state_that_a_stopping_worker_hands_back_is_a_span_with_its_cause(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    with receiving() as sentry, collecting() as collector:
        start_workers(fleet, CARRIED, sentry, collector)
        _, jid = deposited(session, settings, source.put("/a.txt", b"slow" * 1000, hold=threading.Event()))
        job_reaches(session, jid, JobState.DOWNLOADING)
        fleet.stop()
        assert errors(sentry) == []

    last = runs(collector.spans, jid)[-1]
    assert (last.name, last.failed) == ("run/job.downloading", False)
    assert last.attributes["celery.state"] == RETRY
    assert last.attributes["celery.retry.reason"] == "the worker is stopping: another worker takes over"


@each_way
def test_every_state_is_a_span_below_that_of_the_state_before(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, queues: tuple[str, ...]
) -> None:
    with receiving() as sentry, collecting() as collector:
        start_workers(fleet, queues, sentry, collector)
        _, jid = deposited(session, settings, source.put("/a.txt", b"a"))
        done = job_reaches(session, jid, JobState.COMPLETED)
        fleet.stop()
        spans, known = runs(collector.spans, jid), {span.span_id: span for span in collector.spans}
        assert errors(sentry) == []

    assert [span.name for span in spans] == worked_in(done.history)
    assert not any(span.failed for span in spans)
    assert len({span.trace_id for span in spans}) == 1
    for before, span in pairwise(spans):
        sent = known[span.parent_id]
        assert sent.name == span.name.replace("run/", "apply_async/")
        assert sent.parent_id == before.span_id
        assert before.end <= span.start or queues == SENT
