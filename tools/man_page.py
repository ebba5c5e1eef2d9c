"""Write arkline(1), the manual page, from the table of commands.

`python -m tools.man_page > entrypoints/cli/arkline.1`; the wheel installs it.
"""

import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any

from typer.main import get_command

from entrypoints.cli.command_table import GROUPS, Entry, load
from entrypoints.cli.main import app

WIDTH = 10_000
"""Columns: man wraps lines itself."""


def page() -> str:
    root = get_command(app)
    return "\n".join(
        (
            f'.TH ARKLINE 1 "" "arkline {version("arkline")}" "User Commands"',
            ".SH NAME",
            f"arkline \\- {_text(str(root.help))}",
            ".SH SYNOPSIS",
            ".B arkline",
            "COMMAND [OPTIONS] [ARGUMENTS]",
            *(line for group, entries in GROUPS.items() for line in _section(group, entries)),
            ".SH EXIT STATUS",
            _text(str(root.epilog)),
            "",
        )
    )


def _section(group: str, entries: Iterable[Entry]) -> Iterator[str]:
    yield f".SH {_text(group.upper())}"
    for entry in entries:
        loaded = load(entry.name)
        if not entry.commands:
            yield from _command(f"arkline {entry.name}", loaded)
        for name in entry.commands:
            yield from _command(f"arkline {entry.name} {name}", loaded.commands[name])


def _command(name: str, command: Any) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True, terminal_width=WIDTH)
    yield f".SS {_text(' '.join((name, *command.collect_usage_pieces(context))))}"
    for number, paragraph in enumerate((command.help or "").split("\n\n")):
        yield from ([".PP"] if number else [])
        yield _text(paragraph)
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            yield from (".TP", f".B {_text(record[0])}", _text(record[1]) or "\\&")
    yield ".PP"
    yield _text(command.epilog or "")


def _text(text: str) -> str:
    """One line without roff requests or escapes."""
    line = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line[:1] in {".", "'"} else line


if __name__ == "__main__":
    sys.stdout.write(page())
