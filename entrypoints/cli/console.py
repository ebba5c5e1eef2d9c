"""Output: answers on standard output, everything else on standard error.

Colour is used on a terminal only, and not if NO_COLOR is set; piped output is not cut to any width.
"""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.states import BatchState, FailureKind, JobState

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
    stream = sys.stderr if stderr else sys.stdout
    piped = not stream.isatty() and not os.environ.get("COLUMNS")
    return Console(stderr=stderr, highlight=False, width=PIPED_WIDTH if piped else None)


def emit(value: Any) -> None:
    """Write one JSON document; `value` is a record, or is made of dicts, lists and records."""
    document = json.dumps(to_jsonable_python(value), indent=1, ensure_ascii=False)
    sys.stdout.write(document + "\n")


def say(text: str | Text, style: str = "") -> None:
    """One line or paragraph of an answer."""
    out().print(Text(text, style) if isinstance(text, str) else text)


def note(text: str, style: str = "yellow") -> None:
    """A remark that is not part of the answer."""
    err().print(Text(text, style))


def progress(line: str) -> None:
    """A line on standard error while a command runs; a closed terminal must not disturb an orderly stop."""
    with suppress(OSError, SystemExit):  # rich answers a broken pipe with SystemExit
        err().print(Text(line))


def flush() -> None:
    """Let a reader of standard output see the answer although the command continues."""
    sys.stdout.flush()


def style_of(name: str) -> str:
    return _STYLES.get(name, _AT_WORK)


def state(name: str) -> Text:
    """A state or a kind of failure in its colour."""
    return Text(name, style_of(name))


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
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            grid.add_row(name, _cell(value))
    return grid


@dataclass(frozen=True)
class Column:
    """A table's column; a `wide` one is left out on a narrow terminal, a `long` one is folded."""

    title: str
    wide: bool = False
    long: bool = False
    right: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> None:
    show(table_grid(columns, rows))


def table_grid(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> Table:
    wide = out().width >= NARROW
    shown = [at for at, column in enumerate(columns) if wide or not column.wide]
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in (columns[at] for at in shown):
        grid.add_column(
            column.title,
            no_wrap=not column.long,
            overflow="fold" if column.long else "ellipsis",
            justify="right" if column.right else "left",
        )
    for row in rows:
        grid.add_row(*(_cell(row[at]) for at in shown))
    return grid


def _cell(value: str | Text) -> Text:
    """Never read as markup: names and messages come from outside, and their control characters stay here."""
    return value if isinstance(value, Text) else Text(printable(value))


def printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
