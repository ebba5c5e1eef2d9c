"""Metrics of the requests that this process answers, and of its streams."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from starlette.types import Scope

BUCKETS = (0.01, 0.05, 0.25, 1.0, 5.0)
"""Upper bounds of the time until an answer begins, in seconds; each is a series of every route."""

UNKNOWN = "unknown"
"""The label of paths that no route has, so that a stranger cannot add series."""

OTHER = "other"
"""The label of methods that the route does not have, for the same reason."""


class RequestMetrics:
    """Thread-safe. Labels have the pattern of a route, never a path with an id."""

    def __init__(self, open_streams: Callable[[], int]) -> None:
        # a series more for each counter, which nobody reads
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
        """A request; `scope` as the routes left it."""
        route = scope.get("route")
        path = getattr(route, "path", UNKNOWN)
        methods = getattr(route, "methods", None) or ()
        method = scope["method"] if scope["method"] in methods else OTHER if route else UNKNOWN
        self._requests.labels(path, method, str(code)).inc()
        self._seconds.labels(path).observe(seconds)

    def receiving(self) -> AbstractContextManager[None]:
        """For the time in which the bytes of an upload arrive."""
        return self._uploads.track_inprogress()

    def exposition(self) -> bytes:
        """In Prometheus's text format."""
        return generate_latest(self._registry)
