"""`arkline object`: shows an object and proves that its files are as they were deposited.

`arkline export`: hands an object out again as a BagIt bag.

`arkline fixity`: the report of the fixity schedule, and checks now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import pydantic
import typer
from rich import progress as bars

from entrypoints.cli import api, context, exit_codes, reach
from entrypoints.cli import context as opened
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import Json, SharedOptions, command
from entrypoints.render import console as screen
from entrypoints.render import fixity as drawn
from entrypoints.render import object as drawn_object
from operations import site
from operations.objects import export as exporting
from operations.objects import fixity, objects
from pipeline import humanize
from pipeline.errors import UsageRefused
from pipeline.preservation import proof
from pipeline.preservation.proof import size_of
from pipeline.working_storage import capacity

if TYPE_CHECKING:
    from operations.objects.objects import ObjectView

PROGRESS_INTERVAL = 30.0
"""Seconds between two lines of progress without a terminal."""


@command("arkline object ark:/99999/fk4abc --all-versions")
def object(
    ark: Annotated[str, typer.Argument(metavar="ARK", help="ARK of the object, such as ark:/99999/fk4abc.")],
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=1, help="Prove this version; default: the current one."),
    ] = None,
    all_versions: Annotated[bool, typer.Option("--all-versions", help="Prove every version.")] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify/--no-verify", help="Read every byte from storage, or only compare records."),
    ] = True,
    premis: Annotated[
        Path | None,
        typer.Option(
            "--premis", metavar="FILE", help="Also write all files and events as one PREMIS 3 document."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show an object and prove its custody.

    For every file: its digest at the source, after download, in storage and now; then the events since
    storage. Exit 4 if the digests differ or a file is missing. Ctrl-C stops the reading and shows the result
    so far.
    """
    if all_versions and version is not None:
        raise UsageRefused("--version and --all-versions cannot be combined")
    if premis is not None:
        reach.refuse_over_api("--premis")
    here = premis is not None or (verify and reach.is_own_stack())
    if not here and (remote := api.client()) is not None:
        recorded = api.object_view(remote, ark, version, every=all_versions)
        if verify:
            screen.note("over the API the records are compared: no byte is read from storage")
        _show(recorded, as_json=json)
    settings = opened.settings()
    inventory = opened.own_inventory(settings)
    known = objects.known_object(inventory, ark)
    events = objects.timeline(inventory, known)
    numbers = objects.versions_to_prove(known, version, every=all_versions)
    if premis is not None:
        objects.write_premis(known, events, site.storage_of(settings, inventory), premis)
    storage = site.storage_of(settings, inventory) if verify else None
    total = size_of(known, numbers) if verify else 0
    with screen.interruptible() as interrupted, reading_progress(total) as on_read:
        view = objects.object_view(known, events, numbers, storage, on_read, interrupted)
    _show(view, as_json=json, premis=premis)


def _show(view: ObjectView, *, as_json: bool, premis: Path | None = None) -> NoReturn:
    if as_json:
        screen.emit(view)
    else:
        drawn_object.described(view)
        if premis is not None:
            screen.say(f"{premis} has the files and the events of every version as PREMIS 3.")
    raise typer.Exit(exit_codes.of_custody(view.custody))


@contextmanager
def reading_progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """Shows how many bytes were read: a bar on a terminal, else a line every PROGRESS_INTERVAL.

    `total` is None if it is not known.
    """
    console = screen.err()
    if not console.is_terminal:
        yield _lines(total)
        return
    columns = (
        bars.TextColumn("reading"),
        bars.BarColumn(bar_width=None),
        bars.DownloadColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda size: progress.advance(task, size)


def _lines(total: int | None) -> Callable[[int], None]:
    read, last = 0, time.monotonic()

    def on_read(size: int) -> None:
        nonlocal read, last
        read += size
        if time.monotonic() - last >= PROGRESS_INTERVAL:
            last = time.monotonic()
            of = "" if total is None else f" of {capacity.in_units(total)}"
            screen.note(f"read {capacity.in_units(read)}{of}", "")

    return on_read


@command("arkline export ark:/99999/fk4abc --output harbour-master")
def export(
    ark: Annotated[str, typer.Argument(metavar="ARK", help="ARK of the object, such as ark:/99999/fk4abc.")],
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=1, help="Export this version; default: the current one."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="The new folder; default: named after the ARK, here."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write an object as a BagIt bag.

    Every file is compared with its recorded digest during the copy. Exit 4 without a bag if storage is
    damaged. The folder gets its name when the bag is complete. metadata/premis.xml has the events of the
    object, and the export becomes one of them.
    """
    settings = opened.settings()
    inventory = opened.own_inventory(settings)
    known, number = exporting.object_to_export(inventory, ark, version)
    folder = output or Path(exporting.bag_name(known, number))
    with (
        screen.interruptible() as interrupted,
        reading_progress(proof.size_of(known, (number,))) as on_read,
    ):
        request = exporting.ExportRequest(known, number, folder, opened.principal().name)
        bag = exporting.export(request, inventory, site.storage_of(settings, inventory), on_read, interrupted)
    if bag.not_entered:
        screen.note(f"the bag is complete, but the inventory has no event of this export: {bag.not_entered}")
    if json:
        screen.emit(bag)
        return
    amount = f"{humanize.counted(bag.files, 'file')}, {capacity.in_units(bag.bytes)}"
    screen.say(f"{bag.ark} version {bag.version} is a bag in {bag.folder}: {amount}, verified", "green")


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
        common.quiet_site() as site,
        screen.interruptible() as interrupted,
        reading_progress(None) as on_read,
    ):
        context.existing_inventory(site.settings)
        run = fixity.check_fixity(
            site,
            context.principal(options.by),
            arks or (),
            every=every,
            on_read=on_read,
            on_check=lambda outcome: None if options.json else drawn.checked(outcome),
            stopped=interrupted,
        )
    screen.emit(run) if options.json else drawn.summary(run)
    raise typer.Exit(exit_codes.of_fixity(run))
