"""An OpenTelemetry collector on loopback: decodes the traces that it receives, as OTLP over HTTP has them."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.servers.base import Handler, serving


@dataclass(frozen=True)
class ReceivedSpan:
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: int
    end: int
    failed: bool
    message: str
    attributes: dict[str, str | int]
    service: str


@dataclass
class Collector:
    port: int = 0
    status: int = 200
    """Of the next answers; what is refused is not kept."""
    spans: list[ReceivedSpan] = field(default_factory=list)
    requests: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_for_jobs(self, number: int, timeout: float = 30) -> list[ReceivedSpan]:
        """The spans, once there are those of so many whole jobs."""
        with self.changed:
            if not self.changed.wait_for(lambda: sum(not s.parent_id for s in self.spans) >= number, timeout):
                raise TimeoutError(f"{len(self.spans)} spans arrived, not those of {number} jobs")
            return list(self.spans)

    def wait_for_requests(self, number: int, timeout: float = 30) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.requests >= number, timeout):
                raise TimeoutError(f"{self.requests} requests arrived, not {number}")


def _decoded(body: bytes) -> Iterator[ReceivedSpan]:
    for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _values(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield ReceivedSpan(
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    name=span.name,
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    failed=span.status.code == span.status.STATUS_CODE_ERROR,
                    message=span.status.message,
                    attributes=_values(span.attributes),
                    service=str(resource["service.name"]),
                )


def _values(attributes: Any) -> dict[str, str | int]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Answer(Handler):
        def do_POST(self) -> None:
            body = self.request_body()
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces", self.path
            with collector.changed:
                collector.requests += 1
                if collector.status == 200:
                    collector.spans.extend(_decoded(body))
                collector.changed.notify_all()
            self.respond(collector.status, headers=(("Content-Type", "application/x-protobuf"),))

    with serving(Answer) as collector.port:
        yield collector
