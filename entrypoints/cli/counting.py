"""A counter for commands whose total is not known."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import Progress, TextColumn

from entrypoints.cli import console as screen

INTERVAL = 10.0
"""Seconds between two lines where there is no terminal."""


@contextmanager
def counter(text: str) -> Iterator[Callable[[int], None]]:
    """Shows the number that it gets: on a terminal in place, else in a line every INTERVAL."""
    if not sys.stderr.isatty():
        yield _lines(text)
        return
    columns = (TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}"))
    with Progress(*columns, console=screen.err(), transient=True) as progress:
        task = progress.add_task(text)
        yield lambda number: progress.update(task, completed=number)


def _lines(text: str) -> Callable[[int], None]:
    last = time.monotonic()

    def show(number: int) -> None:
        nonlocal last
        if time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            screen.note(f"{number:,} {text}", "")

    return show
