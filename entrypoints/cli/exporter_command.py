"""`arkline exporter`: the metrics for Prometheus, without the web server."""

from __future__ import annotations

import signal
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli.options import Json, command
from pipeline.errors import UsageRefused

if TYPE_CHECKING:
    from operations.trace_export import Sender


FIRST_READ = 10.0
"""Seconds to wait for the first reading of the record before scrapes are answered."""


@command("arkline exporter --port 9464")
def exporter(
    host: Annotated[
        str, typer.Option(envvar="ARKLINE_EXPORTER_HOST", help="Address to listen on; 0.0.0.0: all.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="ARKLINE_EXPORTER_PORT", min=0, max=65535, help="Port; 0: a free one.")
    ] = 9464,
    json: Json = False,
) -> None:
    """Serve the metrics for Prometheus.

    No token is needed: let only Prometheus reach the port. Starts while ZooKeeper is away, too, and serves
    what is known then. Traces are sent if ARKLINE_OTLP_ENDPOINT names a
    collector. Runs until SIGTERM.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    from entrypoints.web import metrics
    from entrypoints.web.following import following
    from entrypoints.web.trace_metrics import TraceCollector
    from operations.trace_export import TraceExport
    from tasks.logs import configure

    settings = opened.settings()
    configure(settings.log_level)
    sender = _sender(settings.otlp_endpoint)
    with following(settings) as (site, board):
        if site.session.connected:
            board.wait_filled(FIRST_READ)
        registry = CollectorRegistry()
        registry.register(metrics.ArklineCollector(board, site))
        traces = TraceExport.start(board, site.session, sender) if sender else None
        if traces:
            registry.register(TraceCollector(traces))
        try:
            served, thread = start_http_server(port, host, registry)
        except OSError as error:
            if traces:
                traces.close()
            raise UsageRefused(f"{host} port {port} cannot be listened on: {error.strerror}") from error
        stopped = Event()
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
        url = f"http://{f'[{host}]' if ':' in host else host}:{served.server_port}/metrics"
        screen.emit({"url": url}) if json else screen.say(f"The metrics are at {url}; Ctrl-C stops it.")
        screen.flush()
        try:
            stopped.wait()
        finally:
            served.shutdown()
            thread.join()
            served.server_close()
            if traces:
                traces.close()


def _sender(endpoint: str) -> Sender | None:
    """OpenTelemetry is an extra and takes long to import."""
    if not endpoint:
        return None
    try:
        from operations import otlp
    except ModuleNotFoundError as error:
        raise UsageRefused(
            f"ARKLINE_OTLP_ENDPOINT is set, but the package {error.name} is not installed on this host: "
            "pip install 'arkline[otel]'"
        ) from error
    return otlp.sender(endpoint)
