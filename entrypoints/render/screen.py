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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Any, Generic, TextIO, TypeVar

import rich.console
import rich.progress
import rich.table
import rich.text
from pydantic_core import to_jsonable_python

from pipeline.errors import UsageRefused
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


@dataclass(frozen=True)
class _Ids:
    places: Sequence[str] = ()
    alone: bool = False


_NO_IDS = _Ids()
_IDS = ContextVar("ids", default=_NO_IDS)


@contextmanager
def answering(places: Sequence[str], *, alone: bool) -> Iterator[None]:
    """Within the block, answers have their ids at one of the places, as `jobs.jid`; `alone`: print these."""
    before = _IDS.set(_Ids(places, alone))
    try:
        yield
    finally:
        _IDS.reset(before)


def emit(value: Any) -> None:
    """Print one JSON document, or its ids; `value` is a record, or consists of dicts, lists and records."""
    document = to_jsonable_python(value)
    if _IDS.get().alone:
        sys.stdout.write("".join(f"{printable(name)}\n" for name, _ in rows_of(document)))
        return
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def emit_rows(rows: Mapping[str, Any]) -> None:
    """Print each row of an answer as a line: its JSON, or its id alone."""
    alone = _IDS.get().alone
    for name, row in rows.items():
        sys.stdout.write((printable(name) if alone else json.dumps(row, ensure_ascii=False)) + "\n")
    sys.stdout.flush()


def rows_of(document: Any) -> list[tuple[str, Any]]:
    """The id and the content of each row of an answer; UsageRefused if this answer has no ids."""
    for place in _IDS.get().places:
        *folder, field = place.split(".")
        rows = document.get(folder[0]) if folder else [document]
        if rows is not None and all(field in row for row in rows):
            return [(str(row[field]), row) for row in rows]
    raise UsageRefused("this answer has no ids: use -o json")


_DRAWING: ContextVar[list[rich.console.RenderableType] | None] = ContextVar("drawing", default=None)
"""What was shown since `drawn` began; None: it is printed."""


def drawn(draw: Callable[[], None]) -> rich.console.Group:
    """What `draw` shows, instead of printing it."""
    shown: list[rich.console.RenderableType] = []
    before = _DRAWING.set(shown)
    try:
        draw()
    finally:
        _DRAWING.reset(before)
    return rich.console.Group(*shown)


def as_text(group: rich.console.Group) -> str:
    with (console := out()).capture() as captured:
        console.print(group)
    return captured.get()


def _print(console: Callable[[], rich.console.Console], part: rich.console.RenderableType) -> None:
    if (shown := _DRAWING.get()) is None:
        console().print(part)
    else:
        shown.append(part)


def say(text: str | rich.text.Text, style: str = "") -> None:
    """Print a line or paragraph of an answer; plain piped text does not load rich."""
    if isinstance(text, str) and not style and _is_piped(sys.stdout):
        sys.stdout.write(printable(text) + "\n")
        return
    _print(out, _text(printable(text), style) if isinstance(text, str) else text)


def note(text: str, style: str = "yellow") -> None:
    """Print a remark that is not part of the answer."""
    _print(err, _text(printable(text), style))


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


@contextmanager
def lost_interrupts() -> Iterator[Callable[[], None]]:
    """Yields a function that raises KeyboardInterrupt if Ctrl-C was pressed, which interrupts as usual, too.

    Python drops an exception that is raised while a finalizer runs, such as that of an answer.
    """
    pressed = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        check()

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    previous = signal.getsignal(signal.SIGINT)
    if previous is not signal.SIG_IGN:  # as below nohup
        signal.signal(signal.SIGINT, on_signal)
    try:
        yield check
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
        _print(lambda: console, grid)
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
