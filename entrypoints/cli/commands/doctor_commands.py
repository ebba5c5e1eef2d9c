"""`arkline doctor` and `arkline support-bundle`: this host, its servers and the fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from entrypoints.cli import context, exit_codes
from entrypoints.cli.command_table import load_all
from entrypoints.cli.options import Json, command
from entrypoints.render import screen
from entrypoints.render.remedies import hints
from operations.doctor import bundle, examination, line
from pipeline.working_storage.capacity import in_units


@command("arkline doctor --quiet")
def doctor(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Leave out the lines that are ok.")] = False,
    json: Json = False,
) -> None:
    """Examine this host, its servers and the fleet; say what to do.

    Each line is ok, a warning, a fault or not known, with what was measured and what to do. Nothing is
    changed. Run it on every host, as the user of the fleet, before production and when something is wrong;
    it takes half a minute at most. Exit 1 if there is a fault.
    """
    load_all()  # probes are threads
    context.quiet_logs()
    settings, principal = context.settings(), context.principal()
    with examination.opened(settings) as site:
        view = examination.examine(settings, principal, site)
    if json:
        screen.emit(view)
        raise typer.Exit(exit_codes.of_examination(view))
    for one in view.lines:
        if not quiet or one.verdict is not line.Verdict.OK:
            _say(one)
    counts = ", ".join(f"{number} {verdict}" for verdict in line.Verdict if (number := view.count(verdict)))
    screen.say(f"{view.host}, {view.at:%Y-%m-%d %H:%M} UTC: {counts}")
    raise typer.Exit(exit_codes.of_examination(view))


_STYLES = {"ok": "green", "warning": "yellow", "fault": "bold red", "not known": "magenta"}


def _say(one: line.Line) -> None:
    text = Text(f"{one.verdict:<10}", _STYLES[one.verdict])
    screen.say(text + Text(f"{one.area}: {one.name}: {one.fact}"))
    for step in (
        *(f"try {hint}" for hint in hints(one.remedies)),
        *([f"do: {one.step}"] if one.step else ()),
    ):
        screen.say(Text(f"{'':<10}  {step}"))


@command("arkline support-bundle --to /tmp")
def support_bundle(
    to: Annotated[
        Path, typer.Option("--to", metavar="FOLDER", help="The folder for the archive.", file_okay=False)
    ] = Path(),
    logs: Annotated[
        Path | None,
        typer.Option(
            "--logs", metavar="FOLDER", help="The folder of the logs; default: log in ARKLINE_HOME."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write what an engineer needs from afar, without secrets.

    One archive: what `doctor` says, versions, settings, the fleet, counts, why jobs wait, troubles, logs, and
    the statistics of ZooKeeper and Redis. It has no content of a file, no secret that the settings know and
    no mail address. Read it before you send it.
    """
    load_all()
    context.quiet_logs()
    settings, principal = context.settings(), context.principal()
    with examination.opened(settings) as site:
        view = bundle.write(settings, principal, site, to.absolute(), logs)
    if json:
        screen.emit(view)
        return
    screen.say(f"{view.file}: {len(view.members)} files, {in_units(view.bytes)}.")
    for name in view.shortened:
        screen.note(f"{name} is shortened")
