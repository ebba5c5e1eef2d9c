"""`arkline`: the application, and the one place where an error becomes a line and an exit code.

Exit codes: 0 done, 1 the batch failed or something was found, 2 wrong usage, 3 a service is unreachable,
4 an object's custody is broken.
"""

import logging
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from entrypoints.cli import check_commands as checking
from entrypoints.cli import console as screen
from entrypoints.cli import exit_codes
from entrypoints.cli import inspect_commands as looking
from entrypoints.cli import object_command as proving
from entrypoints.cli import queue_commands as operating
from entrypoints.cli import submit_command as submitting
from entrypoints.cli import verb_commands as verbs
from entrypoints.cli import watch_command as watching
from entrypoints.cli.render.remedies import hints
from pipeline.errors import ArklineError


class Guarded(TyperGroup):
    """Commands whose errors are shown to people: never a traceback, unless --debug asks for it."""

    def invoke(self, context: Any) -> Any:
        debug = bool(context.params.get("debug"))
        _quiet(debug)
        try:
            return super().invoke(context)
        except ArklineError as error:
            _show(error, str(error), debug)
            for hint in hints(error.remedies):
                screen.note(f"try: {hint}")
            raise typer.Exit(exit_codes.of_error(error)) from error
        except (typer.Exit, typer.Abort, TyperException, BrokenPipeError):
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}".rstrip(": ")
            more = "" if debug else "; `arkline --debug ...` shows where"
            _show(error, f"unexpected {told}{more}", debug)
            raise typer.Exit(1) from error


def _quiet(debug: bool) -> None:
    """The libraries' log lines are for --debug: what matters is in our own messages."""
    if debug:
        logging.basicConfig(level=logging.DEBUG)
        return
    for name in ("kazoo", "celery", "kombu"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _show(error: Exception, message: str, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    from rich.text import Text

    screen.err().print(Text.assemble(("error: ", "bold red"), message))


app = typer.Typer(
    name="arkline",
    cls=Guarded,
    help="Deposits into the repository: submit them, see how they fare, and put right what went wrong.",
    epilog="Exit codes: 0 done, 1 the batch failed or something was found, 2 wrong usage, "
    "3 a service is unreachable, 4 an object's custody is broken. Settings come from ARKLINE_* variables.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        screen.say(f"arkline {version('arkline')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and the libraries' logs.")] = False,
) -> None:
    del version
    context.obj = debug


for group in (submitting, checking, looking, proving, watching, verbs, operating):
    group.register(app)


def main() -> None:
    app(prog_name="arkline")
