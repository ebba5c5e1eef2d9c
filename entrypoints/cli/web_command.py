"""`arkline web`: serves the REST API and the pages."""

from __future__ import annotations

from typing import Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli.options import Json, command
from pipeline.errors import ServiceUnreachable


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
    from entrypoints.web.following import following
    from tasks.logs import configure

    def announce(listening: int) -> None:
        url = f"http://{f'[{host}]' if ':' in host else host}:{listening}"
        screen.emit({"url": url}) if json else screen.say(f"arkline answers at {url}; Ctrl-C stops it.")
        screen.flush()

    settings = opened.settings()
    configure(settings.log_level)
    with following(settings) as (site, board):
        from entrypoints.web.app import create_app
        from entrypoints.web.context import WebContext
        from entrypoints.web.server import server

        served = server(create_app(WebContext(site, board), flower, hosts), host, port, announce, proxies)
        served.run()
        if not served.started:
            raise ServiceUnreachable(f"nothing is served: {host} port {port} cannot be listened on")
