"""Shows what checks found: in an object, and in a list of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from entrypoints.render import screen
from entrypoints.render.screen import Column
from entrypoints.render.views import when
from operations.objects import search
from pipeline.checks import CheckVerdict
from pipeline.humanize import counted
from pipeline.names import printable

if TYPE_CHECKING:
    from operations.objects.recheck import CheckedVersion
    from operations.objects.search import ObjectList
    from pipeline.checking.again import NotRechecked
    from pipeline.checks import CheckSummary
    from pipeline.inventory.search.by_findings import FoundObject, Match

_STYLES = {CheckVerdict.FINE: "", CheckVerdict.FOUND: "bold red", CheckVerdict.UNCHECKED: "yellow"}


def runs(summaries: Sequence[CheckSummary]) -> None:
    """The runs of the checks of a version or a job, and what they found."""
    if not summaries:
        return
    screen.say("")
    screen.table(
        summaries,
        Column("check", lambda run: run.check),
        Column("version", lambda run: run.version, long=True),
        Column("time", lambda run: when(run.at)),
        Column("fine", lambda run: f"{run.fine:,}", right=True),
        Column("found", lambda run: _number(run.found, CheckVerdict.FOUND), right=True),
        Column("not checked", lambda run: _number(run.unchecked, CheckVerdict.UNCHECKED), right=True),
    )
    for run in summaries:
        _findings(run)


def checked_again(version: CheckedVersion) -> None:
    """The result of a check of a stored version."""
    run = version.summary
    counts = f"{run.fine:,} fine, {run.found:,} found, {run.unchecked:,} not checked"
    screen.say(printable(f"{version.ark} version {version.version}, {run.check} {run.version}: {counts}"))
    _findings(run)


def not_checked(version: NotRechecked) -> None:
    """The reason why a stored version was not checked."""
    what = f"{version.ark} version {version.version} was not checked by {version.check}"
    screen.say(printable(f"{what}: {version.problem}"), "red")


def _number(number: int, verdict: CheckVerdict) -> Text:
    return Text(f"{number:,}", _STYLES[verdict] if number else "")


def _findings(run: CheckSummary) -> None:
    for finding in run.findings:
        what = _what(finding.code, finding.message)
        screen.say(printable(f"{run.check}: {finding.path}: {finding.verdict.label}{what}"))
    rest = run.found + run.unchecked - len({finding.path for finding in run.findings})
    if rest > 0:
        screen.note(f"{run.check}: {counted(rest, 'more file')} found or not checked", "")
    if run.overruled is not None:
        by, at, reason = run.overruled.by, run.overruled.at, run.overruled.reason
        screen.say(printable(f"{run.check}: overruled by {by}, {when(at)}: {reason}"), "yellow")


def _what(code: str, message: str) -> str:
    text = "; ".join(filter(None, (code, message)))
    return f" ({text})" if text else ""


def object_list(page: ObjectList, text: str) -> None:
    more = (Column("file", _file, long=True), Column("checks", _lines, long=True))
    screen.table(
        page.objects,
        Column("object", lambda row: row.ark),
        Column("title", lambda row: row.title, long=True),
        Column("date", lambda row: row.date),
        Column("collection", lambda row: row.collection),
        Column("files", lambda row: f"{row.files:,}", right=True),
        *(column for column in more if any(map(column.cell, page.objects))),
    )
    if text and not page.objects:
        screen.note(f"no object has all of these words; a text is looked for in {search.SEARCHED}")
    if page.indexing is not None:
        done, of = page.indexing.indexed, page.indexing.objects
        screen.note(f"{done:,} of {of:,} objects are indexed: words do not find the others yet")
    if page.next is not None:
        screen.note(f"{counted(len(page.objects), 'object')} shown; --after {page.next} shows the next page")


def _file(row: FoundObject) -> str:
    return row.file


def _lines(row: FoundObject) -> str:
    lines = [_line(match) for match in row.matches]
    if row.more:
        lines.append("and more")
    if row.never_checked:
        versions = ", ".join(map(str, row.never_checked))
        lines.append(f"version {versions}: not checked, the check did not run")
    lines += [
        f"version {run.version}: last checked by {run.check} {run.check_version}, {when(run.at)}; "
        "a newer version exists"
        for run in row.outdated
    ]
    return "; ".join(lines)


def _line(match: Match) -> str:
    what = _what(match.code, match.message)
    return f"{match.path} of version {match.version}: {match.verdict.label} by {match.check}{what}"
