"""`arkline fixity`: the report of the fixity schedule, and checks now."""

from typing import Annotated

import pydantic
import typer

from entrypoints.cli import api, context, exit_codes, object_command
from entrypoints.cli import console as screen
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import Json, SharedOptions, command
from entrypoints.cli.render import fixity as drawn
from operations import fixity
from pipeline.errors import UsageRefused


@command("arkline fixity report")
def fixity_report(json: Json = False) -> None:
    """Show the last checks, overdue objects and all damage.

    Exit 4 if there is damage.
    """
    if (remote := api.client()) is not None:
        answer = remote.request("GET", "/v1/fixity").content
        report = pydantic.TypeAdapter(fixity.FixityReport).validate_json(answer)
    else:
        settings = context.settings()
        report = fixity.fixity_report(context.existing_inventory(settings), settings)
    screen.emit(report) if json else drawn.report(report)
    raise typer.Exit(exit_codes.BROKEN_CUSTODY if report.counts.damaged else 0)


@command("arkline fixity check ark:/99999/fk4abc", "by", "json")
def fixity_check(
    options: SharedOptions,
    arks: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARK", help="Objects to check; default: those that are due."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Check every object.")] = False,
) -> None:
    """Read stored objects again now, and record the proof or the damage.

    Every version is read, at the rate of ARKLINE_FIXITY_RATE. Exit 4 if an object is damaged, 3 if one could
    not be read. Ctrl-C stops the reading; the next check continues it.
    """
    if every and arks:
        raise UsageRefused("name objects or add --all, not both")
    with (
        common.operator(options) as operator,
        screen.interruptible() as interrupted,
        object_command.reading_progress(None) as on_read,
    ):
        context.existing_inventory(operator.settings)
        run = fixity.check_fixity(
            operator,
            arks or (),
            every=every,
            on_read=on_read,
            on_check=lambda outcome: None if options.json else drawn.checked(outcome),
            stopped=interrupted,
        )
    screen.emit(run) if options.json else drawn.summary(run)
    raise typer.Exit(exit_codes.of_fixity(run))
