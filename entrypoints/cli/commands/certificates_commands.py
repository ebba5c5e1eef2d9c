"""Certificates of the servers of this deployment, by an authority of its own."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from entrypoints.cli.options import command, read_duration
from entrypoints.render import screen
from operations.certificates import authority, secrets
from pipeline.errors import ArklineError, UsageRefused


@command("arkline certificates renew /etc/arkline/certificates --server redis=redis.example.org,192.0.2.7")
def certificates_renew(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="The folder of the authority and the servers' certificates."),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(
            "--server",
            metavar="NAME=HOST,...",
            help="A server's folder, and the names and addresses that clients use. Repeatable; default: the "
            "servers of docker-compose.yml.",
        ),
    ] = None,
    valid: Annotated[
        str, typer.Option("--valid", metavar="DURATION", help="How long new certificates are valid.")
    ] = "30d",
    now: Annotated[
        bool, typer.Option("--now", help="Renew those of the servers that are not old, too.")
    ] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="DURATION", help="Do it again and again, until SIGTERM.")
    ] = "",
    kubernetes: Annotated[
        str,
        typer.Option(
            "--kubernetes",
            metavar="NAME",
            help="In the Secrets NAME-certificates-... of this pod's namespace.",
        ),
    ] = "",
) -> None:
    """Make the certificates of servers, and renew those whose time is two thirds over.

    Nothing else changes: servers and clients take the new files while they work. What is missing is made. Run
    it every day, as docker-compose.yml and the chart do.
    """
    if (folder is None) is not bool(kubernetes):
        raise UsageRefused("give either the folder of the certificates, or --kubernetes NAME")
    servers = _servers(server) if server else authority.SERVERS
    times = authority.Lifetimes(server=timedelta(seconds=read_duration(valid)))
    pause, ended = read_duration(every) if every else 0.0, Event()
    if pause:
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
    while True:
        try:
            if folder is not None:
                replaced = authority.renew(folder, servers, times, at_once=now)
            else:
                replaced = secrets.renew(kubernetes, servers, times, at_once=now)
            _say(replaced)
        except (OSError, ArklineError) as error:
            if not pause:
                raise
            screen.note(f"{error}; tried again in {every}", "")
        if not pause or ended.wait(pause):
            return


def _servers(given: list[str]) -> Mapping[str, tuple[str, ...]]:
    named = {}
    for text in given:
        name, _, hosts = text.partition("=")
        if not name.isidentifier() or not hosts or name in (authority.AUTHORITY, authority.TRUST):
            raise typer.BadParameter(f"'{text}' is not NAME=HOST,...", param_hint="--server")
        named[name] = tuple(hosts.split(","))
    return named


def _say(replaced: list[str]) -> None:
    screen.say("\n".join(f"replaced {name}" for name in replaced) or "nothing is old")
