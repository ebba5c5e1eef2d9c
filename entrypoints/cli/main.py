"""`arkline`: the application, and the only place where an error becomes a message and an exit code.

Exit codes: 0 done, 1 the batch failed or there are findings, 2 wrong usage, 3 a service is unreachable, 4 an
object's custody is broken.
"""

import errno
import gc
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from entrypoints.cli import exit_codes
from entrypoints.cli.command_table import LazyGroup, deferring
from entrypoints.render.remedies import hints
from pipeline.errors import ArklineError
from pipeline.names import printable
from pipeline.umask import keep_private


class ArklineGroup(LazyGroup):
    """Commands whose errors are shown as messages: no traceback unless --debug is set."""

    def invoke(self, context: Any) -> Any:
        debug = bool(context.params.get("debug"))
        _quiet(debug)
        try:
            with deferring():
                answer = super().invoke(context)
            sys.stdout.flush()  # a full disk shows up only now
            return answer  # noqa: TRY300
        except ArklineError as error:
            _show(error, str(error), debug)
            for hint in _hints(error):
                typer.secho(f"try: {hint}", fg="yellow" if _coloured() else None, err=True)
            raise typer.Exit(exit_codes.of_error(error)) from error
        except TyperException as error:
            error.message = error.message.removeprefix("Value error, ")  # pydantic's, before a wrong choice
            raise
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what the end would flush
            raise typer.Exit(exit_codes.UNREAD) from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise  # as from `--help`, which runs no command
            text = f"{type(error).__name__}: {error}".rstrip(": ")
            remedy = "" if debug else "; `arkline --debug ...` shows where"
            _show(error, f"unexpected {text}{remedy}", debug)
            raise typer.Exit(1) from error


def _quiet(debug: bool) -> None:
    """Hide the libraries' log lines unless --debug is set: our own messages say what matters."""
    if debug:
        logging.basicConfig(level=logging.DEBUG)
        return
    for name in ("arkline.session", "celery", "kazoo", "kombu"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _show(error: Exception, message: str, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    head = typer.style("error:", fg="red", bold=True) if _coloured() else "error:"
    typer.echo(f"{head} {printable(message)}", err=True)


def _hints(error: ArklineError) -> Iterable[str]:
    """What to do; in a shell without settings, to read those of the stack that runs on this machine."""
    if not any(name.startswith("ARKLINE_") for name in os.environ):
        from entrypoints.cli import logins  # these take longer than `arkline --help`
        from entrypoints.stack.home import unread_environment

        if not logins.file().exists() and (file := unread_environment()) is not None:
            home = file.parent.parent
            yield f". {shlex.quote(str(file))}: have this shell use the stack that runs in {home}"
            return
    yield from hints(error.remedies)


def _coloured() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


app = typer.Typer(
    name="arkline",
    cls=ArklineGroup,
    help="Ingest deposits into the repository: submit them, follow their progress, resolve failures.",
    epilog="Exit codes: 0 done, 1 the batch failed or there are findings, 2 wrong usage, "
    "3 a service is unreachable, 4 an object's custody is broken. Settings come from ARKLINE_* variables.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # this import takes a tenth of the time of `arkline --help`

        typer.echo(f"arkline {version('arkline')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and the libraries' logs.")] = False,
) -> None:
    del show_version, debug


GARBAGE = 50_000
"""Garbage collection threshold in objects: the modules that a command loads are not garbage."""


NOT_ON_WINDOWS = (
    "error: arkline runs on Linux and macOS. On Windows use the repository's pages, or this command in the "
    "Windows Subsystem for Linux (wsl --install)."
)


def main() -> None:
    if os.name == "nt":
        typer.echo(NOT_ON_WINDOWS, err=True)
        raise SystemExit(exit_codes.REFUSED)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # until the process ends
    keep_private()
    gc.set_threshold(GARBAGE)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else all installed packages are asked
    try:
        app(prog_name="arkline")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        where = error.filename or "the output"
        _show(error, f"{where} cannot be written: no space left on its disk", debug=False)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes the rest of the output at exit
        sys.exit(exit_codes.FAILED)
    finally:
        gc.freeze()  # otherwise Python searches all loaded modules for garbage, several times, at exit
