"""`arkline object`: shows an object and proves that its files are as they were deposited."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
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

PROGRESS_INTERVAL = 30.0
"""Seconds between two lines of progress without a terminal."""


def register(app: typer.Typer) -> None:
    app.command("object", epilog="Example: arkline object ark:/99999/fk4abc --all-versions")(object_)


def object_(
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
    json: Json = False,
) -> None:
    """Show an object and prove its custody.

    For every file: its digest at the source, after download, in storage and now. Exit 4 if the digests differ
    or a file is missing. Ctrl-C stops the reading and shows the result so far.
    """
    if all_versions and version is not None:
        raise UsageRefused("--version and --all-versions cannot be combined")
    settings = opened.settings()
    known = known_object(opened.existing_inventory(settings), ark)
    numbers = versions_to_prove(known, version, every=all_versions)
    storage = opened.storage(settings) if verify else None
    with interruptible() as stopped, _progress(size_of(known, numbers) if verify else 0) as on_read:
        view = object_view(known, numbers, storage, on_read, stopped)
    screen.emit(view) if json else drawn_object.described(view)
    raise typer.Exit(exit_codes.of_custody(view.custody))


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; pressed again, it ends the command as usual."""
    pressed = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Shows how many bytes were read: a bar on a terminal, else a line every PROGRESS_INTERVAL."""
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

    def on_read(size: int) -> None:
        nonlocal read, last
        read += size
        if time.monotonic() - last >= PROGRESS_INTERVAL:
            last = time.monotonic()
            screen.note(f"read {in_units(read)} of {in_units(total)}", "")

    return on_read
