"""Sends spans to an OpenTelemetry collector by OTLP over HTTP; imported if ARKLINE_OTLP_ENDPOINT is set.

Credentials for the collector come from OpenTelemetry's own variable, OTEL_EXPORTER_OTLP_HEADERS.
"""

from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from operations.board.board import Board
from pipeline.settings import Settings, read_settings
from plugins.otel.settings import OtelSettings
from plugins.otel.traces import Sender, Span, TraceExport
from zkstate.connection.session import Session

PATH = "/v1/traces"
TIMEOUT = 5.0
"""Seconds for one request including retries; after that its traces are dropped."""

SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def start(settings: Settings, board: Board, session: Session) -> TraceExport:
    """Export jobs that end from now on to the collector in the settings."""
    del settings
    return TraceExport.start(board, session, sender(read_settings(OtelSettings).otlp_endpoint))


def sender(endpoint: str) -> Sender:
    """Sends spans to the collector at `endpoint`, given with or without the path for traces."""
    url = endpoint if endpoint.endswith(PATH) else endpoint.rstrip("/") + PATH
    exporter = OTLPSpanExporter(endpoint=url, timeout=TIMEOUT, compression=Compression.Gzip)
    release = version("arkline")
    resource = Resource({"service.name": "arkline", "service.version": release})
    scope = InstrumentationScope("arkline", release)

    def send(spans: Sequence[Span]) -> bool:
        readable = [_readable(span, resource, scope) for span in spans]
        return exporter.export(readable) is SpanExportResult.SUCCESS

    return send


def _readable(span: Span, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=None if span.parent_id is None else _context(span.trace_id, span.parent_id),
        resource=resource,
        attributes=span.attributes,
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.failure) if span.failure else Status(StatusCode.OK),
        start_time=_nanoseconds(span.start),
        end_time=_nanoseconds(span.end),
        instrumentation_scope=scope,
    )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=SAMPLED)


def _nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6) * 1000
