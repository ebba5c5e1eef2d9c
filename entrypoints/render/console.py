"""Output: answers on standard output, everything else on standard error.

Colour is used on a terminal only, and not if NO_COLOR is set; piped output is not cut to any width. To load
rich takes as long as a submission takes at ZooKeeper and Redis: it is imported where something is drawn.

A counter for commands whose total is not known.
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
from typing import TYPE_CHECKING, Any, Generic, TextIO, TypeVar

from pydantic_core import to_jsonable_python
from rich.progress import Progress, TextColumn

from pipeline.names import printable
from pipeline.states import BatchState, FailureKind, JobState

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")

PIPED_WIDTH = 10_000
"""Columns of piped output: no line of a table is ever cut or folded there."""

NARROW = 90
"""Columns below which a table shows only the main columns."""

_STYLES: dict[str, str] = {
    JobState.COMPLETED: "green",
    JobState.FAILED: "red",
    JobState.HELD: "yellow",
    JobState.DELETED: "dim",
    BatchState.PENDING: "blue",
    FailureKind.CONTENT: "magenta",
    FailureKind.SYSTEM: "bold red",
    FailureKind.TRANSIENT: "yellow",
}
_AT_WORK = "cyan"


def out() -> Console:
    return _console(stderr=False)


def err() -> Console:
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    from rich.console import Console

    piped = _is_piped(sys.stderr if stderr else sys.stdout)
    return Console(stderr=stderr, highlight=False, width=PIPED_WIDTH if piped else None)


def _is_piped(stream: TextIO) -> bool:
    return not stream.isatty() and not os.environ.get("COLUMNS")


def emit(value: Any) -> None:
    """Write one JSON document; `value` is a record, or is made of dicts, lists and records."""
    document = json.dumps(to_jsonable_python(value), indent=1, ensure_ascii=False)
    sys.stdout.write(document + "\n")


def say(text: str | Text, style: str = "") -> None:
    """One line or paragraph of an answer; a script gets a plain one without loading rich."""
    if isinstance(text, str) and not style and _is_piped(sys.stdout):
        sys.stdout.write(printable(text) + "\n")
        return
    out().print(_text(printable(text), style) if isinstance(text, str) else text)


def note(text: str, style: str = "yellow") -> None:
    """A remark that is not part of the answer."""
    err().print(_text(printable(text), style))


def progress(line: str) -> None:
    """A line on standard error while a command runs; a closed terminal must not disturb an orderly stop."""
    with suppress(OSError, SystemExit):  # rich answers a broken pipe with SystemExit
        err().print(_text(printable(line)))


def flush() -> None:
    """Let a reader of standard output see the answer although the command continues."""
    sys.stdout.flush()


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; pressed again, Ctrl-C ends the command as usual."""
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


def state(name: str) -> Text:
    """A state or a kind of failure in its colour."""
    return _text(name, style_of(name))


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style)


def show(grid: Table) -> None:
    """Print a table, without the blanks at the ends of its lines that would fill a pipe."""
    console = out()
    if console.is_terminal:
        console.print(grid)
        return
    with console.capture() as captured:
        console.print(grid)
    lines = (line.rstrip() for line in captured.get().splitlines())
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def facts(pairs: Iterable[tuple[str, str | Text | None]]) -> None:
    show(facts_grid(pairs))


def facts_grid(pairs: Iterable[tuple[str, str | Text | None]]) -> Table:
    """Name and value, one pair a line; a pair without a value is left out."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            grid.add_row(name, _cell(value))
    return grid


@dataclass(frozen=True)
class Column(Generic[T]):
    """A table's column and its cell in a row; a `wide` column is left out on a narrow terminal, a `long` one
    is folded."""

    title: str
    cell: Callable[[T], str | Text]
    wide: bool = False
    long: bool = False
    right: bool = False


def table(rows: Iterable[T], *columns: Column[T]) -> None:
    show(table_grid(rows, *columns))


def table_grid(rows: Iterable[T], *columns: Column[T]) -> Table:
    from rich.table import Table

    wide = out().width >= NARROW
    shown = [column for column in columns if wide or not column.wide]
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in shown:
        grid.add_column(
            column.title,
            no_wrap=not column.long,
            overflow="fold" if column.long else "ellipsis",
            justify="right" if column.right else "left",
        )
    for row in rows:
        grid.add_row(*(_cell(column.cell(row)) for column in shown))
    return grid


def _cell(value: str | Text) -> Text:
    """Never read as markup: names and messages come from outside, and their control characters stay here."""
    return _text(printable(value).replace("\n", " ")) if isinstance(value, str) else value


INTERVAL = 10.0
"""Seconds between two lines where there is no terminal."""


@contextmanager
def counter(text: str) -> Iterator[Callable[[int], None]]:
    """Shows the number that it gets: on a terminal in place, else in a line every INTERVAL."""
    if not sys.stderr.isatty():
        yield _lines(text)
        return
    columns = (TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}"))
    with Progress(*columns, console=err(), transient=True) as progress:
        task = progress.add_task(text)
        yield lambda number: progress.update(task, completed=number)


def _lines(text: str) -> Callable[[int], None]:
    last = time.monotonic()

    def show(number: int) -> None:
        nonlocal last
        if time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            note(f"{number:,} {text}", "")

    return show
