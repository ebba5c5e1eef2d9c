"""`arkline standalone`: a complete stack on this machine, without containers or root."""

from __future__ import annotations

import io
import os
import shlex
import stat
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import kombu.utils.url
import typer

import entrypoints.stack.home
from entrypoints.cli import context
from entrypoints.cli.command_table import load_all
from entrypoints.cli.options import Json, command
from entrypoints.render import screen
from entrypoints.stack import services, stack
from operations.fleet import record_fault
from operations.site import Site
from pipeline import codes
from pipeline.errors import ArklineError
from zkstate.connection.session import connect
from zkstate.errors import Unreachable

if TYPE_CHECKING:
    from entrypoints.stack.home import StackInfo
    from entrypoints.stack.services import StackConfig
    from pipeline.settings import Settings

Home = Annotated[
    Path | None,
    typer.Option(
        envvar="ARKLINE_HOME",
        file_okay=False,
        show_default=False,
        help="The folder that holds everything; default: $XDG_DATA_HOME/arkline or ~/.local/share/arkline.",
    ),
]


@command("arkline standalone start --detach")
def standalone_start(  # noqa: PLR0913 - its options
    detach: Annotated[bool, typer.Option("--detach", help="Return when every service is ready.")] = False,
    home: Home = None,
    zookeeper: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="The folder of an unpacked ZooKeeper; default: the system's packages, or ZOOKEEPER_HOME.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    concurrency: Annotated[int, typer.Option(min=1, help="Jobs that a worker runs at the same time.")] = 2,
    servers_only: Annotated[
        bool, typer.Option("--servers-only", help="Start ZooKeeper and Redis alone, as to restore a backup.")
    ] = False,
    json: Json = False,
) -> None:
    """Start ZooKeeper, Redis, workers, beats, pages and Flower.

    Prints the addresses. Ctrl-C stops the stack in order. Servers named by ARKLINE_ZK_HOSTS and
    ARKLINE_BROKER_URL are used and not started.
    """
    folder = (home or entrypoints.stack.home.default_home()).absolute()
    config = services.StackConfig(
        home=folder,
        workers=workers,
        concurrency=concurrency,
        zookeeper=zookeeper,
        servers_only=servers_only,
        stop_command=shlex.join(("arkline", "standalone", "stop", "--home", str(folder))),
    )
    run(config, detach=detach, as_json=json)


@command("arkline standalone stop")
def standalone_stop(home: Home = None, json: Json = False) -> None:
    """Stop the stack in order.

    Running steps are finished, or handed back after ARKLINE_STOP_GRACE.
    """
    end((home or entrypoints.stack.home.default_home()).absolute(), as_json=json)


def run(config: StackConfig, *, detach: bool, as_json: bool = False) -> None:
    def ready(info: StackInfo) -> None:
        if as_json:
            screen.emit(info)
        else:
            show(info, config.home)
            screen.say(f"To stop it: {config.stop_command}" if detach else "Ctrl-C stops the stack.")
        screen.flush()

    if detach:
        ready(stack.start_in_background(config))
    else:
        stack.run(config, screen.progress, ready, partial(_check_record, config.home))


def _check_record(home: Path, settings: Settings) -> None:
    """Refuse a record that workers and beats would not work on, with the way to its repair."""
    load_all()  # a session has threads
    context.quiet_logs()
    with suppress(Unreachable), connect(settings) as session:  # workers wait for ZooKeeper, and log why
        fault = record_fault.compared_fault(Site(settings, session))
        if fault is not None:
            alone = shlex.join(("arkline", "standalone", "start", "--servers-only", "--home", str(home)))
            raise ArklineError(
                f"{fault.message}. The servers alone, for such a command: {alone}", code=codes.STACK_FAILED
            )


def end(home: Path, *, as_json: bool = False) -> None:
    seconds = stack.stop(home)
    if as_json:
        screen.emit({"home": home, "stopped": seconds is not None})
    elif seconds is None:
        screen.say(f"No stack runs in {home}.")
    else:
        screen.say(f"Stopped after {seconds:.1f} s.")


def _writes_to_a_file() -> bool:
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except io.UnsupportedOperation:
        return False


def show(info: StackInfo, home: Path) -> None:
    """Print the addresses; not the login if standard output is a file, because others may read logs."""
    if info.web_url and _writes_to_a_file():
        place = f"see {entrypoints.stack.home.info_path(home)}"
        info = info.model_copy(update={"token": place, "flower_user": "", "flower_password": ""})
    screen.facts(
        (
            ("ZooKeeper", info.zk_hosts),
            ("Redis", kombu.utils.url.maybe_sanitize_url(info.broker_url)),
            ("board", info.web_url),
            ("  login", info.token),
            ("Flower", info.flower_url),
            ("  login", f"{info.flower_user} / {info.flower_password}" if info.flower_user else ""),
            ("profiles", info.environment.get("ARKLINE_PROFILES", str(home / "profiles"))),
            ("logs", str(home / "log")),
            ("for programs", str(entrypoints.stack.home.info_path(home))),
            ("for a shell", f". {entrypoints.stack.home.environment_path(home)}"),
        )
    )
