"""Renders an examination: the lines by area, what to do about each, and the counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from entrypoints.render import screen
from entrypoints.render.remedies import hints
from operations.doctor.line import Verdict

if TYPE_CHECKING:
    from operations.doctor.line import Examination, Line

_STYLES = {
    Verdict.OK: "green",
    Verdict.WARNING: "yellow",
    Verdict.FAULT: "bold red",
    Verdict.NOT_KNOWN: "magenta",
}


def show(view: Examination, *, quiet: bool = False) -> None:
    """`quiet`: without the lines that are ok."""
    for line in view.lines:
        if not quiet or line.verdict is not Verdict.OK:
            _show(line)
    counts = ", ".join(f"{number} {verdict}" for verdict in Verdict if (number := view.count(verdict)))
    screen.say(f"{view.host}, {view.at:%Y-%m-%d %H:%M} UTC: {counts}")


def _show(line: Line) -> None:
    text = Text(f"{line.verdict:<10}", _STYLES[line.verdict])
    screen.say(text + Text(f"{line.area}: {line.name}: {line.fact}"))
    for hint in hints(line.remedies):
        screen.say(Text(f"{'':<10}  try {hint}"))
    if line.step:
        screen.say(Text(f"{'':<10}  do: {line.step}"))
