"""Prometheus metrics: the board, the fleet and this process's requests, collected at each scrape.

No label has an id, a host or an ARK, so the number of series depends only on the collections.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import version
from operator import itemgetter
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.routing import Route
from starlette.types import Scope

from entrypoints.web.problems import methods_of
from operations.board.board import Board
from operations.board.tally import BOUNDS, Tallied
from operations.board.values import EVERYTHING
from operations.fleet import measures
from operations.fleet.measures import BrokerMeasures, Measures, RecordMeasures
from operations.site import Site
from pipeline.causes import CODES
from pipeline.checks import CheckVerdict
from pipeline.records import age
from pipeline.states import JOB, BatchState, JobState

BUCKETS = (0.01, 0.05, 0.25, 1.0, 5.0)
"""Upper bounds, in seconds, of the time until an answer begins; each is a series per route."""

UNKNOWN = "unknown"
"""Label for paths without a route, so that strangers cannot add series."""

OTHER = "other"
"""Label for methods that the route does not have, for the same reason."""


class RequestMetrics:
    """Thread-safe. Labels have the route's pattern, never a path with an id."""

    def __init__(self, open_streams: Callable[[], int]) -> None:
        # they would add an unused series to each counter
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "arkline_http_requests",
            "Requests that were answered.",
            ("route", "method", "code"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "arkline_http_request_duration_seconds",
            "Time until the answer begins.",
            ("route",),
            buckets=BUCKETS,
            registry=self._registry,
        )
        streams = Gauge("arkline_event_clients", "Open streams of events.", registry=self._registry)
        streams.set_function(open_streams)
        self._uploads = Gauge(
            "arkline_uploads_active", "Uploads whose bytes arrive now.", registry=self._registry
        )

    def count(self, scope: Scope, code: int, seconds: float) -> None:
        """Count a request; `scope` as the routes left it."""
        route = scope.get("route")
        path = getattr(route, "path", UNKNOWN)
        methods = methods_of(route) if isinstance(route, Route) else ()
        method = scope["method"] if scope["method"] in methods else OTHER if route else UNKNOWN
        self._requests.labels(path, method, str(code)).inc()
        self._seconds.labels(path).observe(seconds)

    def receiving(self) -> AbstractContextManager[None]:
        """Count an upload as in progress while its bytes arrive."""
        return self._uploads.track_inprogress()

    def exposition(self) -> bytes:
        """The request metrics in Prometheus's text format."""
        return generate_latest(self._registry)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

L = TypeVar("L", bound=str)

MEASURED_EVERY = 10.0
"""Seconds for which scrapes reuse the answers of workers, Redis and disks."""


class ArklineCollector(Collector):
    """Thread-safe."""

    def __init__(self, board: Board, site: Site) -> None:
        self._board = board
        self._site = site
        self._lock = threading.Lock()
        self._measured: Measures | None = None
        self._measured_at = 0.0

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registering the collector sends no queries."""
        return ()

    def collect(self) -> Iterator[Metric]:
        measured = self._measure()
        yield _gauge("build_info", "The release.", [((version("arkline"),), 1)], "version")
        if self._board.known:
            yield from _of_jobs(self._board)
            yield from _of_stops(self._board)
        yield from _of_moves(self._board.tally())
        yield from _of_feed(self._board)
        yield _value("zookeeper_up", "1 if ZooKeeper answers.", measured.record is not None)
        yield _value(
            "broker_up",
            "1 if Redis answers, accepts writes and has this prefix.",
            measured.broker is not None,
        )
        yield _value("in_flight_limit", "Jobs in progress at most.", self._site.settings.in_flight)
        if measured.record is not None:
            yield from _of_queues(measured.record, self._board)
            yield from _of_record(measured.record)
            yield _value(
                "working_storage_threshold_ratio",
                "Part of working storage that may be used or reserved.",
                self._site.settings.working_threshold / 100,
            )
        if measured.broker is not None:
            yield from _of_broker(measured.broker)
        yield _gauge(
            "certificate_end_timestamp_seconds",
            "When the certificate that a server shows ends.",
            [((server,), end.timestamp()) for server, end in measured.certificates.items()],
            "server",
        )
        if measured.storage_root_free is not None:
            yield _value("storage_root_free_bytes", "Free space of the root.", measured.storage_root_free)

    def _measure(self) -> Measures:
        with self._lock:
            if self._measured is None or time.monotonic() - self._measured_at > MEASURED_EVERY:
                self._measured = measures.measure(self._site)
                self._measured_at = time.monotonic()
            return self._measured


def exposition(source: ArklineCollector) -> bytes:
    """All current metrics, in Prometheus's text format (CONTENT_TYPE)."""
    registry = CollectorRegistry()
    registry.register(source)
    return generate_latest(registry)


def _of_jobs(board: Board) -> Iterator[Metric]:
    counts = board.counts(EVERYTHING)
    yield _gauge("jobs", "Jobs in the record.", [((state,), n) for state, n in counts.items()], "state")
    oldest = {(state,): age(since) for state, since in board.oldest(EVERYTHING).items()}
    yield _gauge("oldest_job_age_seconds", "Age of the oldest job in a state.", oldest.items(), "state")
    collections = board.collections(EVERYTHING)
    by_collection = {(one.collection, state): n for one in collections for state, n in one.jobs.items()}
    yield _gauge("collection_jobs", "Jobs of a collection.", by_collection.items(), "collection", "state")
    batches = {(state,): sum(one.batches.get(state, 0) for one in collections) for state in BatchState}
    yield _gauge("batches", "Batches in the record.", batches.items(), "state")
    ages = {(state,): age(since) for state, since in board.oldest_batches(EVERYTHING).items()}
    yield _gauge("oldest_batch_age_seconds", "Age of the oldest batch in a state.", ages.items(), "state")
    failed = defaultdict[tuple[str, ...], float](float)
    by_cause = defaultdict[tuple[str, ...], float](float)
    for group in board.failures(EVERYTHING):
        failed[group.kind,] += group.count
        by_cause[group.code if group.code in CODES else "unknown",] += group.count
    yield _gauge("failed_jobs", "Failed jobs by the kind of their failure.", failed.items(), "kind")
    yield _gauge("failed_jobs_by_cause", "Failed jobs by the code of the cause.", by_cause.items(), "cause")


def _of_stops(board: Board) -> Iterator[Metric]:
    stops = board.stops(EVERYTHING)
    yield _value("queue_paused", "1 if an operator paused the queue.", stops.pause is not None)
    held = {(one.collection or "",): 1.0 for one in stops.collections}
    yield _gauge("collection_on_hold", "1 for a collection on hold.", held.items(), "collection")
    ages = {("hold",): age(min(one.at for one in stops.collections))} if stops.collections else {}
    if stops.pause is not None:
        ages["pause",] = age(stops.pause.at)
    yield _gauge("oldest_stop_age_seconds", "Age of the pause and of the oldest hold.", ages.items(), "kind")


def _of_moves(tallied: Tallied) -> Iterator[Metric]:
    moves = CounterMetricFamily("arkline_job_moves", "Moves of jobs.", labels=("event", "source", "target"))
    for (source, target), number in sorted(tallied.moves.items()):
        moves.add_metric((_event(source, target), source, target), number)
    yield moves
    failures = CounterMetricFamily("arkline_job_failures", "Failures of jobs.", labels=("kind", "state"))
    for (kind, state), number in sorted(tallied.failures.items()):
        failures.add_metric((kind, state), number)
    yield failures
    durations = HistogramMetricFamily(
        "arkline_job_state_duration_seconds", "Time in a state, at its end.", labels=("state", "outcome")
    )
    for (source, target), spent in sorted(tallied.durations.items(), key=itemgetter(0)):
        durations.add_metric((source, _event(source, target)), _buckets(spent.counts), spent.total)
    yield durations
    yield HistogramMetricFamily(
        "arkline_job_duration_seconds",
        "Time from the submission to the completion of a job.",
        buckets=_buckets(tallied.completions.counts),
        sum_value=tallied.completions.total,
    )
    yield _counters("job_retries", "Waits for another try after a transient fault.", tallied.retries, "state")
    yield _counters("reports", "Batches that were reported, by their outcome.", tallied.reports, "outcome")
    deposited = tallied.deposited
    for name, text, numbers in (
        ("deposited_files", "Files", {of: added.files for of, added in deposited.items()}),
        ("deposited_bytes", "Bytes", {of: added.bytes for of, added in deposited.items()}),
    ):
        yield _counters(name, f"{text} that reported batches have added to storage.", numbers, "collection")
    text = "Files of reported batches by what a check found."
    yield _by_verdict("checked_files", text, tallied.checked)


def _event(source: JobState, target: JobState) -> str:
    """The event between the two states; empty if several moves lie between them."""
    return next((row.event.value for row in JOB.table if (row.source, row.target) == (source, target)), "")


def _buckets(counts: Iterable[int]) -> list[tuple[str, float]]:
    buckets, below = [], 0
    for bound, number in zip((*BOUNDS, "+Inf"), counts, strict=True):
        below += number
        buckets.append((str(bound), float(below)))
    return buckets


def _of_feed(board: Board) -> Iterator[Metric]:
    freshness, tallied = board.freshness(), board.tally()
    yield _value("board_stale", "1 while the board cannot follow the record.", freshness.stale)
    yield _value("board_following", "1 while ZooKeeper pushes changes.", freshness.following)
    yield _counter("feed_events", "Changes of the record that were pushed.", tallied.events)
    yield _counter("feed_resyncs", "Comparisons after a lost connection.", freshness.resyncs)
    yield _counter("feed_corrections", "Differences that a comparison corrected.", freshness.corrections)
    yield _value("feed_lag_seconds", "Time from a change to the board, last.", tallied.lag)


def _of_queues(record: RecordMeasures, board: Board) -> Iterator[Metric]:
    depths = {(queue.value,): depth for queue, depth in record.depths.items()}
    text = "Jobs and batches that a process could begin with now."
    yield _gauge("queue_waiting", text, [(q, one.waiting) for q, one in depths.items()], "queue")
    text = "Jobs and batches that a process works on."
    yield _gauge("queue_working", text, [(q, one.working) for q, one in depths.items()], "queue")
    oldest = {q: one.oldest for q, one in depths.items() if one.oldest}
    first = (JOB.task(JOB.initial).queue.value,)
    if board.known and depths[first].waiting and (pending := board.oldest(EVERYTHING).get(JOB.initial)):
        oldest[first] = min(pending, oldest.get(first, pending))
    text = "Age of the oldest of those that wait."
    yield _gauge("queue_oldest_age_seconds", text, [(q, age(at)) for q, at in oldest.items()], "queue")


NOTIFICATIONS = {
    "subscriptions": "Subscriptions to events.",
    "waiting": "Events that wait for a subscription.",
    "suspended": "Subscriptions whose deliveries failed for too long.",
}


def _of_record(record: RecordMeasures) -> Iterator[Metric]:
    yield _value("in_flight_jobs", "Jobs that take a place.", record.in_flight)
    yield _value("callbacks_owed", "Callbacks of failed jobs that are not delivered.", record.callbacks_owed)
    yield _value("beats", "Schedulers that run; one of them works.", record.beats)
    yield _value("working_storage_promised_bytes", "Bytes reserved for jobs.", record.reserved)
    if record.capacity is not None and record.used is not None:
        yield _value("working_storage_capacity_bytes", "Size of working storage.", record.capacity)
        yield _value("working_storage_used_bytes", "Bytes used in working storage.", record.used)
    yield _counters(
        "job_redispatches", "Jobs that a sweep has dispatched again.", record.redispatched, "state"
    )
    yield _value("hosts_waiting", "Hosts to which no request is sent for a while.", record.hosts_waiting)
    outages = {(service,): float(number) for service, number in record.outages.items()}
    yield _gauge("service_outages", "Unavailable shared services.", outages.items(), "service")
    yield _value("fixity_objects", "Objects in the fixity schedule.", record.fixity.objects)
    yield _value("fixity_damaged_objects", "Objects with damage in storage.", record.fixity.damaged)
    yield _value("fixity_overdue_objects", "Objects not read within their period.", record.fixity.overdue)
    read = {"intact": record.fixity.files_intact, "damaged": record.fixity.files_damaged}
    yield _counters("custody_files", "Files that fixity checks have read.", read, "outcome")
    repeated = record.repeated_checks
    text = "Stored versions that are to be checked again."
    yield _gauge("outdated_checks", text, [((one.check,), one.outstanding) for one in repeated], "check")
    again = {
        (one.check, verdict): getattr(one, verdict.value) for one in repeated for verdict in CheckVerdict
    }
    yield _by_verdict("rechecked_files", "Files that the schedule has checked again.", again)
    for name, number in record.notifications.items():
        yield _value(f"notifications_{name}", NOTIFICATIONS[name], number)
    if (audit := record.last_audit) is not None:
        yield _value("audit_findings", "Findings of the last complete audit.", audit.findings)
        yield _value("audit_last_run_timestamp_seconds", "When it ended.", audit.at.timestamp())


def _of_broker(broker: BrokerMeasures) -> Iterator[Metric]:
    yield _value("broker_foreign_messages", "Messages that arkline did not send.", broker.foreign_messages)
    for name, text, numbers in (
        ("broker_messages", "Messages that wait.", broker.messages),
        ("workers", "Workers that consume the queue.", broker.workers),
        ("worker_processes", "Processes of these workers.", broker.processes),
        ("worker_processes_busy", "Processes that work on a task.", broker.busy),
    ):
        yield _gauge(name, text, [((queue,), n) for queue, n in numbers.items()], "queue")
    yield _counters("callbacks", "Tries of workers to deliver a callback.", broker.callbacks, "outcome")
    text = "Tries of workers to deliver notifications."
    yield _counters("notifications", text, broker.notifications, "outcome")


def _gauge(name: str, text: str, values: Iterable[tuple[tuple[str, ...], float]], *labels: str) -> Metric:
    family = GaugeMetricFamily(f"arkline_{name}", text, labels=labels)
    for label_values, value in sorted(values):
        family.add_metric(label_values, value)
    return family


def _counters(name: str, text: str, numbers: Mapping[L, int], label: str) -> Metric:
    family = CounterMetricFamily(f"arkline_{name}", text, labels=(label,))
    for value, number in sorted(numbers.items()):
        family.add_metric((value,), number)
    return family


def _by_verdict(name: str, text: str, numbers: Mapping[tuple[str, CheckVerdict], int]) -> Metric:
    family = CounterMetricFamily(f"arkline_{name}", text, labels=("check", "verdict"))
    for (check, verdict), number in sorted(numbers.items()):
        family.add_metric((check, verdict.value), number)
    return family


def _value(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"arkline_{name}", text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"arkline_{name}", text, value=value)
