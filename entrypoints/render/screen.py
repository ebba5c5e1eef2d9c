"""Output: answers go to standard output, everything else to standard error.

Colour is used only on a terminal, and not if NO_COLOR is set; piped output is never cut.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Generic, TextIO, TypeVar

import rich.console
import rich.progress
import rich.table
import rich.text
from pydantic_core import to_jsonable_python

from pipeline.names import printable
from pipeline.states import BatchState, FailureKind, JobState

T = TypeVar("T")

PIPED_WIDTH = 10_000
"""Width of piped output in columns, so that no table row is cut or folded."""

NARROW = 90
"""Width in columns below which a table shows only its main columns."""

_STYLES: dict[str, str] = {
    JobState.COMPLETED: "green",
    JobState.FAILED: "red",
    JobState.HELD: "yellow",
    JobState.REVIEW: "yellow",
    JobState.DELETED: "dim",
    BatchState.PENDING: "blue",
    FailureKind.CONTENT: "magenta",
    FailureKind.SYSTEM: "bold red",
    FailureKind.TRANSIENT: "yellow",
}
_AT_WORK = "cyan"


def out() -> rich.console.Console:
    return _console(stderr=False)


def err() -> rich.console.Console:
    return _console(stderr=True)


def _console(stderr: bool) -> rich.console.Console:
    piped = _is_piped(sys.stderr if stderr else sys.stdout)
    return rich.console.Console(stderr=stderr, highlight=False, width=PIPED_WIDTH if piped else None)


def _is_piped(stream: TextIO) -> bool:
    return not stream.isatty() and not os.environ.get("COLUMNS")


def emit(value: Any) -> None:
    """Print one JSON document; `value` is a record, or consists of dicts, lists and records."""
    document = json.dumps(to_jsonable_python(value), indent=1, ensure_ascii=False)
    sys.stdout.write(document + "\n")


def say(text: str | rich.text.Text, style: str = "") -> None:
    """Print a line or paragraph of an answer; plain piped text does not load rich."""
    if isinstance(text, str) and not style and _is_piped(sys.stdout):
        sys.stdout.write(printable(text) + "\n")
        return
    out().print(_text(printable(text), style) if isinstance(text, str) else text)


def note(text: str, style: str = "yellow") -> None:
    """Print a remark that is not part of the answer."""
    err().print(_text(printable(text), style))


def progress(line: str) -> None:
    """Print a line on standard error during a command; a closed terminal must not disturb an orderly stop."""
    with suppress(OSError, SystemExit):  # rich raises SystemExit on a broken pipe
        err().print(_text(printable(line)))


def flush() -> None:
    """Flush standard output, so that a reader sees the answer while the command continues."""
    sys.stdout.flush()


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yields whether Ctrl-C was pressed; a second Ctrl-C ends the command as usual."""
    pressed = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, previous)


def style_of(name: str) -> str:
    return _STYLES.get(name, _AT_WORK)


def state(name: str) -> rich.text.Text:
    """A state or failure kind in its colour."""
    return _text(name, style_of(name))


def _text(text: str, style: str = "") -> rich.text.Text:
    return rich.text.Text(text, style)


def show(grid: rich.table.Table) -> None:
    """Print a table; when piped, without trailing blanks."""
    console = out()
    if console.is_terminal:
        console.print(grid)
        return
    with console.capture() as captured:
        console.print(grid)
    lines = (line.rstrip() for line in captured.get().splitlines())
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def facts(pairs: Iterable[tuple[str, str | rich.text.Text | None]]) -> None:
    show(facts_grid(pairs))


def facts_grid(pairs: Iterable[tuple[str, str | rich.text.Text | None]]) -> rich.table.Table:
    """A grid of name and value, one pair per line; pairs without a value are skipped."""
    grid = rich.table.Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            grid.add_row(name, _cell(value))
    return grid


@dataclass(frozen=True)
class Column(Generic[T]):
    """A table column and its cell function; a `wide` one is omitted on a narrow terminal.

    With too little room, `wide` and `long` ones are folded: Rich would shrink all alike, to nothing.
    """

    title: str
    cell: Callable[[T], str | rich.text.Text]
    wide: bool = False
    long: bool = False
    right: bool = False


def table(rows: Iterable[T], *columns: Column[T]) -> None:
    show(table_grid(rows, *columns))


def table_grid(rows: Iterable[T], *columns: Column[T]) -> rich.table.Table:
    wide = out().width >= NARROW
    shown = [column for column in columns if wide or not column.wide]
    grid = rich.table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in shown:
        grid.add_column(
            column.title,
            no_wrap=not (column.long or column.wide),
            overflow="fold" if column.long or column.wide else "ellipsis",
            justify="right" if column.right else "left",
        )
    for row in rows:
        grid.add_row(*(_cell(column.cell(row)) for column in shown))
    return grid


def _cell(value: str | rich.text.Text) -> rich.text.Text:
    """The text without markup or control characters: names and messages come from outside."""
    return _text(printable(value).replace("\n", " ")) if isinstance(value, str) else value


INTERVAL = 30.0
"""Seconds between two progress lines when there is no terminal."""

Words = Callable[[float, int], str]
"""Formats progress from the amount done and the total (0 if unknown)."""


@contextmanager
def counting(words: Words) -> Iterator[Callable[[float, int], None]]:
    """Show a command's progress: in place on a terminal, otherwise a line every INTERVAL."""
    if not sys.stderr.isatty():
        yield _lines(words)
        return
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TimeRemainingColumn(),
    )
    with rich.progress.Progress(*columns, console=err(), transient=True) as bars:
        task = bars.add_task("", total=None)
        yield lambda done, total: bars.update(
            task, completed=done, total=total or None, description=words(done, total)
        )


def _lines(words: Words) -> Callable[[float, int], None]:
    last = time.monotonic()

    def show(done: float, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            note(words(done, total), "")

    return show
