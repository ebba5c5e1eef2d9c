"""Renders an object with the custody of its files, and the results of the fixity schedule.

Each file is a table row or, on a narrow terminal, a paragraph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from entrypoints.render import check_runs, screen
from entrypoints.render.screen import Column
from entrypoints.render.views import local, when
from operations.objects.objects import ObjectView
from pipeline.description import premis
from pipeline.description.premis import ObjectEvent
from pipeline.humanize import age, counted, duration
from pipeline.inventory.base import DESCRIPTION, InventoryVersion
from pipeline.inventory.description import FAIL
from pipeline.inventory.fixity import FixityCheck
from pipeline.names import printable
from pipeline.preservation.custody import Custody, FileCustody, Origin, Source, Verdict
from pipeline.preservation.premis_record import formats_of
from pipeline.records import now
from pipeline.working_storage.capacity import in_units

if TYPE_CHECKING:
    from collections.abc import Iterable

    from operations.objects.fixity import FixityReport, FixityRun
    from pipeline.inventory.base import DamagedFile
    from pipeline.preservation.fixity import Unreadable

DIGITS = 8
"""Hexadecimal digits of a digest in a terminal's table; pipes, --json and problems show all digits."""

MAX_FILES = 500
"""Maximum number of files shown of a version; more take many seconds. --json has all."""

MAX_PROBLEMS = 100
"""Maximum number of problems printed; --json has all."""

SHOWN_EVENTS = 20

SHOWN_DAMAGE = 3
"""Lines of the damage of a failed event in the table of events; --json has all."""

_NOT_RECORDED = "not recorded"


def described(view: ObjectView) -> None:
    screen.say(view.ark, "bold")
    screen.facts(
        (
            ("owner", view.owner),
            ("collections", ", ".join(view.collections)),
            ("local ids", "; ".join(view.local_id)),
            *view.erc,
            ("embargo", _embargo(view)),
            ("fixity", _fixity(view)),
            ("created", when(view.created)),
            ("changed", when(view.modified)),
        )
    )
    for version in view.versions:
        _version(version)
        if version.number in view.custody.versions:
            _deposit(version)
            check_runs.runs(version.checks)
            screen.say("")
            files = [file for file in view.custody.files if file.version == version.number]
            _some(files, _formats(view, version))
    screen.say("")
    _events(view.timeline)
    screen.say("")
    _problems(view.custody)
    _sum(view.custody, len(view.versions))


def _formats(view: ObjectView, of: InventoryVersion) -> dict[str, str]:
    """Path -> codes of PRONOM, for the files whose format was identified."""
    codes = {file.path: ", ".join(formats_of(view, file)) for file in of.files if file.findings}
    return {path: text for path, text in codes.items() if text}


def _embargo(view: ObjectView) -> str:
    if view.embargo is None:
        return ""
    if view.embargo.until is None:
        return "its end is not known: only operators get the files"
    if not view.embargo.holds(now()):
        return f"ended {when(view.embargo.until)}"
    return f"until {view.embargo.until:%Y-%m-%d %H:%M} UTC: only operators get the files"


def _fixity(view: ObjectView) -> str:
    """The last proof by the fixity schedule."""
    last = view.fixity
    if last is None or last.checked is None:
        return "not read again yet"
    read = f"{counted(last.files, 'file')} of {counted(last.versions, 'version')}, {in_units(last.bytes)}"
    if last.damaged:
        proved = f"; last proved {when(last.proved)}" if last.proved else ""
        return f"damage found {when(last.checked)} ({counted(last.damaged, 'problem')}){proved}"
    return f"proved {when(last.proved or last.checked)}: {read}"


def _version(version: InventoryVersion) -> None:
    size = in_units(sum(file.size for file in version.files))
    note = printable(f": {version.note}" if version.note else "")
    screen.say(
        f"\nversion {version.number}, {counted(len(version.files), 'file')}, {size}, "
        f"{when(version.created)}, {version.jid}{note}"
    )


def _deposit(version: InventoryVersion) -> None:
    """Print a version's deposit: submitter, time, and where its events are."""
    by = f" by {version.submitter}" if version.submitter else ""
    events = f"system/{premis.NAME}"
    screen.facts(
        (
            ("deposited", f"{when(version.submitted)}{by}"),
            ("payload", version.payload_name),
            ("batch", f"{version.bid}, collection {version.profile}"),
            ("downloaded", _local_if_recorded(version.downloaded)),
            ("stored", " at ".join(filter(None, (local(version.created), version.storage_url)))),
            ("read back", _local_if_recorded(version.verified)),
            ("events", events if any(file.path == events for file in version.files) else ""),
        )
    )


def _events(timeline: Sequence[ObjectEvent]) -> None:
    """Print the latest events, without those of processing, which are in the stored PREMIS."""
    screen.table(
        list(timeline[-SHOWN_EVENTS:]),
        Column("event", lambda event: event.type),
        Column("time", lambda event: local(event.at)),
        Column(
            "outcome",
            lambda event: Text(event.outcome, "bold red") if event.outcome == FAIL else event.outcome,
        ),
        Column("what", _what, long=True),
    )
    if len(timeline) > SHOWN_EVENTS:
        screen.note(f"{len(timeline) - SHOWN_EVENTS:,} earlier events: --json has them all", "")


def _what(event: ObjectEvent) -> str:
    """What was done and, of an event that failed, the damage."""
    damage = event.note.splitlines() if event.outcome == FAIL else []
    more = [f"and {len(damage) - SHOWN_DAMAGE:,} more"] if len(damage) > SHOWN_DAMAGE else []
    return "; ".join((event.detail, *damage[:SHOWN_DAMAGE], *more))


def _local_if_recorded(moment: datetime | None) -> str:
    return local(moment) if moment else _NOT_RECORDED


def _some(files: Sequence[FileCustody], formats: Mapping[str, str]) -> None:
    """Print the files in order; beyond MAX_FILES only that many, those with problems first."""
    if len(files) <= MAX_FILES:
        _files(files, formats)
        return
    _files(sorted(files, key=lambda file: not file.problems)[:MAX_FILES], formats)
    screen.note(f"{len(files) - MAX_FILES:,} more files: --json has them all", "")


def _files(files: Sequence[FileCustody], formats: Mapping[str, str]) -> None:
    width = screen.out().width
    digits = None if width >= screen.PIPED_WIDTH else DIGITS
    roomy = digits is None or width < screen.NARROW
    rows = [(file, (_source(file.source, digits, roomy=roomy), *_digests(file, digits))) for file in files]
    if width < screen.NARROW:
        for file, digests in rows:
            screen.say(printable(file.path), "bold")
            screen.facts(zip(("  source", "  download", "  storage", "  now"), digests, strict=True))
            screen.facts((("  format", formats.get(file.path, "")),))
        return
    screen.table(
        rows,
        Column("file", lambda row: row[0].path, long=True),
        Column("size", lambda row: in_units(row[0].storage.size) if row[0].storage else "", right=True),
        *((Column("format", lambda row: formats.get(row[0].path, "")),) if formats else ()),
        Column("at source", lambda row: row[1][0]),
        Column("at download", lambda row: row[1][1]),
        Column("at storage", lambda row: row[1][2]),
        Column("now", lambda row: row[1][3]),
    )


def _source(source: Source, digits: int | None, *, roomy: bool) -> str:
    if not source.digest:
        return source.origin
    algorithm, _, value = source.digest.partition(":")
    of = f" of {source.container}" if source.container else ""
    by = f", {source.declared_by}, checked on download" if roomy else ""
    return f"{algorithm}:{value[:digits]}{of}{by}"


def _digests(file: FileCustody, digits: int | None) -> Iterator[str | Text]:
    """The columns download, storage and now."""
    source, download, stored = file.source, file.download, file.storage
    if download:
        yield f"{download.sha512[:digits]}" + (
            f" v{download.version}" if download.version != file.version else ""
        )
    else:
        yield "" if source.origin is Origin.OURS else _NOT_RECORDED
    yield f"{stored.sha512[:digits]} v{stored.version}" if stored else _NOT_RECORDED
    yield _now(file, digits)


def _now(file: FileCustody, digits: int | None) -> Text:
    value = (file.now.sha512 or "")[:digits] if file.now else ""
    match file.verdict:
        case Verdict.AGREES:
            return Text(value, "green")
        case Verdict.NOT_READ:
            return Text(file.verdict, "dim")
        case _:
            return Text(f"{file.verdict} {value}".rstrip(), "bold red")


def _problems(custody: Custody) -> None:
    problems = [
        (f"{file.path} of version {file.version}", problem)
        for file in custody.files
        for problem in file.problems
    ]
    problems += ((DESCRIPTION, problem) for problem in custody.description)
    for place, problem in problems[:MAX_PROBLEMS]:
        screen.say(printable(f"{place}: {problem.what}."), "red")
        screen.say(printable(f"To do: {problem.remedy}."))
    if len(problems) > MAX_PROBLEMS:
        screen.note(f"{counted(len(problems) - MAX_PROBLEMS, 'more problem')}: --json has them all")
    if problems:
        screen.say("")


def _sum(custody: Custody, versions: int) -> None:
    """Print the summary: what is proved and what is not."""
    files = len(custody.files)
    bad = sum(bool(file.problems) for file in custody.files)
    unread = sum(file.verdict is Verdict.NOT_READ for file in custody.files)
    if bad:
        screen.say(f"Custody is broken: {bad:,} of {counted(files, 'file')}.", "bold red")
    elif custody.description:
        screen.say(
            f"Custody is broken: {counted(files, 'file')} as stored, but not {DESCRIPTION}.",
            "bold red",
        )
    elif not custody.read:
        screen.say("The records agree with each other; storage was not read.", "yellow")
    elif custody.complete:
        screen.say(
            f"Custody is proved: {counted(files, 'file')}, {in_units(custody.bytes_read)}, read until "
            f"{local(custody.ended)}, as downloaded and stored.",
            "green",
        )
    if custody.read and not custody.complete:
        screen.say(f"Interrupted: {unread:,} of {counted(files, 'file')} not read.", "yellow")
    unknown = sum(file.source.origin is Origin.UNKNOWN and file.storage is not None for file in custody.files)
    if unknown:
        screen.note(
            f"the declared digest and the download of {counted(unknown, 'file')} are not recorded: "
            "an earlier release ingested them, or the list was lost with working storage"
        )
    rest = versions - len(custody.versions)
    if rest:
        screen.note(f"{counted(rest, 'other version')} not checked: add --all-versions", "")


def fixity_report(view: FixityReport) -> None:
    counts = view.counts
    screen.facts(
        (
            ("objects", f"{counts.objects:,} in the schedule"),
            ("period", ", ".join(f"{name} {counted(days, 'day')}" for name, days in view.periods.items())),
            ("oldest", f"read {duration(age(counts.oldest))} ago" if counts.oldest else ""),
            ("overdue", counted(counts.overdue, "object") if counts.overdue else ""),
            ("damaged", counted(counts.damaged, "object") if counts.damaged else ""),
        )
    )
    for event in view.damage:
        screen.say(f"\n{event.ark}, found {when(event.at)}", "bold red")
        _damage(event.files)
        if event.damaged > len(event.files):
            screen.say(f"and {counted(event.damaged - len(event.files), 'more problem')}")
    if counts.damaged > len(view.damage):
        screen.note(f"{counted(counts.damaged - len(view.damage), 'more object')} damaged")
    if not counts.damaged:
        screen.say("No damage is known.", "green")


def checked(outcome: FixityCheck | Unreadable) -> None:
    """Print one object as soon as it has been checked."""
    if not isinstance(outcome, FixityCheck):
        screen.note(f"{outcome.ark} cannot be checked: {printable(outcome.problem)}")
    elif outcome.damaged:
        screen.say(f"{outcome.ark} is damaged: {counted(len(outcome.damaged), 'problem')}", "bold red")
        _damage(outcome.damaged)
    else:
        read = f"{counted(outcome.files, 'file')} of {counted(outcome.versions, 'version')}"
        screen.say(f"{outcome.ark} is proved: {read}, {in_units(outcome.bytes)}", "green")


def fixity_summary(run: FixityRun) -> None:
    if run.problem:
        screen.note(f"{run.problem}: the next check continues", "yellow")
    elif not run.complete:
        screen.note("interrupted: the next check continues")
    elif not run.checked and not run.unreadable:
        screen.say("Nothing is due.")


def _damage(files: Iterable[DamagedFile]) -> None:
    for file in files:
        screen.say(printable(f"{file.place}: {file.what}."), "red")
        screen.say(printable(f"To do: {file.remedy}."))
