"""`arkline object`: shows an object and proves that its files are as they were deposited."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich import progress as bars

from entrypoints.cli import api, exit_codes, reach, recorded_objects
from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli.options import Json, command
from entrypoints.cli.render import object as drawn_object
from operations import objects, site
from pipeline.errors import UsageRefused
from pipeline.preservation.proof import size_of
from pipeline.working_storage import capacity

if TYPE_CHECKING:
    from operations.objects import ObjectView

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
        recorded = recorded_objects.object_view(remote, ark, version, every=all_versions)
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
