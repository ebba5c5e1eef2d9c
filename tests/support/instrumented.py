"""A site's module for its workers, with Sentry and OpenTelemetry as their documentation has them.

`celery -A arkline worker -I tests.support.instrumented`, with SENTRY_DSN and OTEL_EXPORTER_OTLP_ENDPOINT.
"""

import sentry_sdk
from celery.signals import worker_process_init
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from sentry_sdk.integrations.celery import CeleryIntegration

sentry_sdk.init(integrations=[CeleryIntegration()])


@worker_process_init.connect(weak=False)
def trace_tasks(**_: object) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    CeleryInstrumentor().instrument()  # type: ignore[no-untyped-call]  # it has no types
