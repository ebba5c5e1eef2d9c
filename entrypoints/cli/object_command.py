"""`arkline object`: what the repository holds of an object, and the proof that it is what was deposited."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import exit_codes
from entrypoints.cli.options import Json
from entrypoints.cli.render import object as drawn_object
from operations.custody_check import size_of
from operations.objects import known_object, object_view, versions_to_prove
from pipeline.errors import UsageRefused
from pipeline.working_storage.capacity import in_units

BETWEEN_LINES = 30.0
"""Seconds between two lines of progress where there is no terminal to draw a bar on."""


def register(app: typer.Typer) -> None:
    app.command("object", epilog="Example: arkline object ark:/99999/fk4abc --all-versions")(object_)


def object_(
    ark: Annotated[str, typer.Argument(metavar="ARK", help="As ark:/99999/fk4abc.")],
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=1, help="Prove this version; without: the current one."),
    ] = None,
    all_versions: Annotated[bool, typer.Option("--all-versions", help="Prove every version.")] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify/--no-verify", help="Read every byte from storage, or compare records only."),
    ] = True,
    json: Json = False,
) -> None:
    """Show an object and prove its custody.

    Of every file: the digest at its source, at landing, at storage and now. Exit 4 if they disagree
    or a file is missing. Ctrl-C ends the reading and tells what was read.
    """
    if all_versions and version is not None:
        raise UsageRefused("--version and --all-versions exclude each other")
    settings = opened.settings()
    found = known_object(opened.kept_inventory(settings), ark)
    numbers = versions_to_prove(found, version, every=all_versions)
    storage = opened.storage(settings) if verify else None
    with _progress(size_of(found, numbers) if verify else 0) as seen:
        view = object_view(found, numbers, storage, seen)
    screen.emit(view) if json else drawn_object.described(view)
    raise typer.Exit(exit_codes.of_custody(view.custody))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """What is to be told of bytes that were read: a bar on a terminal, a line now and then elsewhere."""
    console = screen.err()
    if not console.is_terminal:
        yield _lines(total)
        return
    columns = (TextColumn("reading"), BarColumn(bar_width=None), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda size: progress.advance(task, size)


def _lines(total: int) -> Callable[[int], None]:
    read, last = 0, time.monotonic()

    def seen(size: int) -> None:
        nonlocal read, last
        read += size
        if time.monotonic() - last >= BETWEEN_LINES:
            last = time.monotonic()
            screen.note(f"read {in_units(read)} of {in_units(total)}", "")

    return seen
