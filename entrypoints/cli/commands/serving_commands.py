"""`arkline exporter` and `web`: serve metrics, or the API and the pages, until SIGTERM."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from threading import Event
from typing import TYPE_CHECKING, Annotated

import prometheus_client
import typer

import entrypoints.web.app
import entrypoints.web.context
import entrypoints.web.metrics
import entrypoints.web.server
from entrypoints.cli import context
from entrypoints.cli.command_table import load_all
from entrypoints.cli.options import Json, command
from entrypoints.render import screen
from pipeline import plugins
from pipeline.errors import ServiceUnreachable, UsageRefused
from tasks import logs

if TYPE_CHECKING:
    from pipeline.settings import Settings

FIRST_READ = 10.0
"""Seconds to wait for the first read of the record before scrapes are answered."""


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
    what is known then. Traces are sent if ARKLINE_OTLP_ENDPOINT names a collector. Runs until SIGTERM.
    """
    settings = _configured()
    export = plugins.chosen(plugins.EXPORTER)
    with entrypoints.web.context.following(settings) as (site, board), ExitStack() as ending:
        if site.session.connected:
            board.wait_filled(FIRST_READ)
        registry = prometheus_client.CollectorRegistry()
        registry.register(entrypoints.web.metrics.ArklineCollector(board, site))
        if export is not None:
            traces = export(settings, board, site.session)
            ending.callback(traces.close)
            registry.register(traces)
        try:
            served, thread = prometheus_client.start_http_server(port, host, registry)
        except OSError as error:
            raise UsageRefused(f"{host} port {port} cannot be listened on: {error.strerror}") from error
        for end in (served.server_close, thread.join, served.shutdown):  # called last to first
            ending.callback(end)
        stopped = Event()
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())
        url = f"{_url(host, served.server_port)}/metrics"
        _announce(url, f"The metrics are at {url}", as_json=json)
        stopped.wait()


@command("arkline web --port 8080")
def web(
    host: Annotated[
        str, typer.Option(envvar="ARKLINE_WEB_HOST", help="Address to listen on; 0.0.0.0: all.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="ARKLINE_WEB_PORT", min=0, max=65535, help="Port; 0: a free one.")
    ] = 8080,
    flower: Annotated[
        str,
        typer.Option(
            "--flower-url", metavar="URL", envvar="ARKLINE_FLOWER_URL", help="Flower, for the link."
        ),
    ] = "",
    proxies: Annotated[
        str,
        typer.Option(
            envvar="ARKLINE_WEB_PROXIES",
            metavar="NETWORKS",
            help="Reverse proxies whose X-Forwarded-For names the client; default: none.",
        ),
    ] = "",
    hosts: Annotated[
        str,
        typer.Option(
            envvar="ARKLINE_WEB_HOSTS",
            metavar="NAMES",
            help="Names by which clients may address this server, with commas; default: any.",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Serve the REST API and the pages.

    Runs until it is stopped. For https, put a reverse proxy before it.
    """
    settings = _configured()

    def announce(listening: int) -> None:
        url = _url(host, listening)
        _announce(url, f"arkline answers at {url}", as_json=json)

    with entrypoints.web.context.following(settings) as (site, board):
        application = entrypoints.web.app.create_app(
            entrypoints.web.context.WebContext(site, board), flower, hosts
        )
        served = entrypoints.web.server.server(application, host, port, announce, proxies)
        served.run()
        if not served.started:
            raise ServiceUnreachable(f"nothing is served: {host} port {port} cannot be listened on")


def _configured() -> Settings:
    """The settings, for a long-running process with threads and logs."""
    load_all()
    settings = context.settings()
    logs.configure(settings.log_level)
    return settings


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _announce(url: str, sentence: str, *, as_json: bool) -> None:
    screen.emit({"url": url}) if as_json else screen.say(f"{sentence}; Ctrl-C stops it.")
    screen.flush()
