"""The problems of a profile, a manifest or a table, one line for each message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from entrypoints.cli import console as screen
from entrypoints.cli.render.humanize import counted
from operations.validation import CheckResult, Finding

SHOWN = 5
"""Further lines with the same problem that are named."""


def show(results: Sequence[CheckResult]) -> None:
    for result in results:
        print_problems(result)
        if result.good:
            rows = "" if result.rows is None else f" of {counted(result.rows, 'row')}"
            verdict = counted(len(result.warnings), "warning") if result.warnings else "good"
            screen.say(f"{result.name}: {result.kind}{rows}, {verdict}", "green")


def print_problems(result: CheckResult) -> None:
    for line, colour in _written(result):
        screen.note(line, colour)


def _written(result: CheckResult) -> Iterator[tuple[str, str]]:
    """Text and colour of each line: the form of compilers, so that editors find the place."""
    for findings, severity, colour in (
        (result.errors, "error", "red"),
        (result.warnings, "warning", "yellow"),
    ):
        for message, lines in _grouped(findings):
            place = f":{lines[0]}" if lines[0] else ""
            yield f"{result.name}{place}: {severity}: {message}{_others(lines[1:])}", colour


def _grouped(findings: Sequence[Finding]) -> Iterator[tuple[str, list[int]]]:
    """Each message with its lines, in the order of the first one."""
    lines: dict[str, list[int]] = {}
    for finding in findings:
        lines.setdefault(finding.message, []).append(finding.line)
    yield from lines.items()


def _others(lines: Sequence[int]) -> str:
    if not lines:
        return ""
    named = ", ".join(map(str, lines[:SHOWN]))
    more = f" and {counted(len(lines) - SHOWN, 'line')} more" if len(lines) > SHOWN else ""
    return f" (also on line {named}{more})" if len(lines) == 1 else f" (also on lines {named}{more})"
