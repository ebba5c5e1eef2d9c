"""`arkline worker`, `beat` and `flower`: this process becomes the program and receives its signals."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import redis
import typer

from entrypoints import programs
from entrypoints.cli import completion, context
from entrypoints.cli.options import command
from operations.certificates import expiry
from operations.fleet import fleet
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.states import Queue
from tasks import redis_keys

if TYPE_CHECKING:
    from pipeline.settings import Settings

FLOWER_LOGIN = "FLOWER_BASIC_AUTH"
"""Flower's own variable: user:password."""

FLOWER_PORT = 5555

NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait",
        help="End with exit code 3 if ZooKeeper or Redis does not answer, instead of waiting for them.",
    ),
]


def read_queues(text: str) -> str:
    """Comma-separated queue names, without duplicates, in table order."""
    named = {name.strip() for name in text.split(",")}
    if unknown := sorted(named - {*Queue}):
        raise typer.BadParameter(f"no queue is named '{unknown[0]}'; the queues are {', '.join(Queue)}")
    return ",".join(queue for queue in Queue if queue in named)


def read_node(text: str) -> str:
    """A worker's name without its host."""
    if not text or not all(letter.isalnum() or letter in "-_." for letter in text):
        raise typer.BadParameter(
            f"'{text}' is not a name: write letters, digits, '-', '_' and '.'; the host is added"
        )
    return text


@command("arkline worker --queues control --processes 2")
def worker(
    queues: Annotated[
        str,
        typer.Option(
            "--queues",
            "-q",
            metavar="QUEUE,...",
            parser=read_queues,
            autocompletion=completion.queues,
            show_default=False,
            help=f"The queues to take work from: {', '.join(Queue)}; default: all of them.",
        ),
    ] = ",".join(Queue),
    processes: Annotated[
        int, typer.Option("--processes", "-c", min=1, help="Jobs that the worker runs at the same time.")
    ] = 4,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            parser=read_node,
            show_default=False,
            help="The worker's name on this host; default: its queue, if it has one queue, else 'worker'.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Start nothing: ask the worker of this name on this host whether it answers."
        ),
    ] = False,
    no_wait: NoWait = False,
) -> None:
    """Run a worker until SIGTERM.

    Each queue needs at least one worker; run one for `control` alone and one for `split` alone. On SIGTERM or
    Ctrl-C, running steps are finished, or handed back after ARKLINE_STOP_GRACE. A worker waits for ZooKeeper,
    Redis and its stores, and logs what it waits for.
    """
    chosen = queues.split(",")
    node = f"{name or (chosen[0] if len(chosen) == 1 else 'worker')}@{socket.gethostname()}"
    settings = context.settings()
    if check:
        become(programs.ping(node))
    if no_wait:
        require_servers(settings)
    become(programs.worker(processes, node, chosen if len(chosen) < len(Queue) else ()))


@command("arkline beat")
def beat(no_wait: NoWait = False) -> None:
    """Run a scheduler until SIGTERM.

    Run two or more: ZooKeeper elects the one that works, the others stand by. A scheduler that is in doubt
    about ZooKeeper ends with exit code 75: let a supervisor start it again.
    """
    settings = context.settings()
    if no_wait:
        require_servers(settings)
    become(programs.beat())


@command("arkline flower --url-prefix flower")
def flower(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = FLOWER_PORT,
    address: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    url_prefix: Annotated[
        str,
        typer.Option(
            metavar="PATH", show_default=False, help="The path of its pages behind a proxy, such as flower."
        ),
    ] = "",
    conf: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Flower's configuration, with its basic_auth; default: FLOWER_BASIC_AUTH=user:password.",
        ),
    ] = None,
    no_wait: NoWait = False,
) -> None:
    """Run Flower, which shows the workers' tasks, until SIGTERM.

    It changes nothing, and asks for a password: tasks name deposits.
    """
    settings = context.settings()
    if conf is None and ":" not in os.environ.get(FLOWER_LOGIN, ""):
        raise UsageRefused(
            f"Flower needs a password: set {FLOWER_LOGIN}=user:password, or write "
            "basic_auth = ['user:password'] into a file and give it by --conf"
        )
    if no_wait:
        require_servers(settings, zookeeper=False)
    become(programs.flower(address, port, url_prefix=url_prefix.strip("/"), conf=conf and conf.absolute()))


def become(argv: tuple[str, ...], variables: Mapping[str, str] | None = None) -> NoReturn:
    """Replace this process: process id, signals and exit code become the program's own."""
    os.execve(argv[0], argv, {**os.environ, **(variables or {})})  # noqa: S606 - our own programs, no shell


def require_servers(settings: Settings, *, zookeeper: bool = True) -> None:
    """ServiceUnreachable if ZooKeeper or Redis does not answer."""
    if zookeeper:
        with context.site():
            """It answers."""
    try:
        with redis_keys.client(settings) as connection:
            connection.ping()
    except redis.RedisError as error:
        address = fleet.broker_address(settings)
        why = expiry.expired_broker(settings) or error
        raise ServiceUnreachable(
            f"Redis at {address} does not answer ({why}); see ARKLINE_BROKER_URL"
        ) from error
