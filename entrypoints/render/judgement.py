"""Renders what would get a deposit refused: problems in profiles, manifests and tables, and dry runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from entrypoints.render import screen
from entrypoints.render.screen import Column
from operations.deposits.dry_run_result import DryRunResult, Estimate, Fit, HostResult, SpaceNeed, Trouble
from operations.deposits.planned import JudgedObject
from operations.deposits.validation import CheckResult, Finding
from pipeline.humanize import by_whom, counted, duration
from pipeline.working_storage.capacity import in_units

OBJECTS = 20
"""Maximum number of objects in the table of a dry run."""

SHOWN = 5
"""Maximum number of further lines listed with the same problem."""


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
    """Text and colour of each line, in the format of compilers, so that editors can jump to the location."""
    for findings, severity, colour in (
        (result.errors, "error", "red"),
        (result.warnings, "warning", "yellow"),
    ):
        for message, lines in _grouped(findings):
            place = f":{lines[0]}" if lines[0] else ""
            yield f"{result.name}{place}: {severity}: {message}{_others(lines[1:])}", colour


def _grouped(findings: Sequence[Finding]) -> Iterator[tuple[str, list[int]]]:
    """Each message with its lines, ordered by first line."""
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


def dry_run(result: DryRunResult) -> None:
    screen.facts(
        (
            ("dry run", "nothing was submitted"),
            ("known", f"batch {result.submitted_before} has the same idempotency key: nothing would happen")
            if result.submitted_before
            else ("", None),
            ("payload", f"{result.payload_url} ({result.payload_type.label}, {result.submission_mode})"),
            ("objects", _objects(result)),
            ("files", f"{result.files:,}, {in_units(result.bytes)}{_unsized(result)}"),
            ("probed", f"{counted(result.asked, 'file')} of {result.files:,}"),
            ("digests", _digests(result)),
            ("queue", _queue(result)),
            ("space", _space(result.space)),
            ("known local ids", _known(result)),
            ("download", _time(result.estimate)),
        )
    )
    _objects_table(result)
    if result.estimate is not None:
        screen.note(_basis(result.estimate), "dim")
    if result.hosts:
        screen.table(
            result.hosts,
            Column("host", lambda host: host.host),
            Column("files", lambda host: f"{host.files:,}", right=True),
            Column("bytes", lambda host: in_units(host.bytes), right=True),
            Column("answers in", _latency, right=True),
            Column("sample", _rate, right=True),
        )
    _problems(result)


def _objects_table(result: DryRunResult) -> None:
    """The first objects as the repository would describe them; a column without values is left out."""
    columns = (
        Column[JudgedObject]("object", lambda one: str(one.number), right=True),
        Column[JudgedObject]("name", lambda one: one.name, long=True),
        Column[JudgedObject]("title", lambda one: one.title, long=True),
        Column[JudgedObject]("creator", lambda one: one.creator, long=True),
        Column[JudgedObject]("date", lambda one: one.date, long=True),
        Column[JudgedObject]("local ids", lambda one: ", ".join(one.local_id), long=True),
        Column[JudgedObject](
            "size", lambda one: "" if one.bytes is None else in_units(one.bytes), right=True
        ),
        Column[JudgedObject]("becomes", lambda one: one.becomes, long=True),
    )
    first = result.objects[:OBJECTS]
    screen.table(first, *(column for column in columns if any(map(column.cell, first))))
    if first and (more := result.jobs - len(first)):
        screen.note(f"and {counted(more, 'object')} more (--json lists them)", "dim")


def _latency(host: HostResult) -> str:
    return "" if host.latency is None else f"{host.latency * 1000:.0f} ms"


def _rate(host: HostResult) -> str:
    return "none" if host.bytes_per_second is None else f"{in_units(host.bytes_per_second)}/s"


def _objects(result: DryRunResult) -> str:
    unread = f"; {result.unread:,} of their manifests were not read" if result.unread else ""
    return f"{result.jobs:,}, of which {result.failing:,} would fail{unread}"


def _unsized(result: DryRunResult) -> str:
    return f" and {counted(result.unsized, 'file')} of unknown size" if result.unsized else ""


def _digests(result: DryRunResult) -> str:
    if not result.without_digest:
        return "every file has one"
    return (
        f"{counted(result.without_digest, 'file')} without a digest: a transfer error would not be detected"
    )


def _queue(result: DryRunResult) -> str:
    if result.priority is None:
        return ""
    return f"priority {result.priority:02d}; {counted(result.ahead, 'job')} ahead"


def _known(result: DryRunResult) -> str:
    listed = ", ".join(f"{local_id} is {ark}" for local_id, ark in result.known.items())
    more = (
        f" and {result.known_count - len(result.known):,} more"
        if result.known_count > len(result.known)
        else ""
    )
    allowed = "they get a new version" if result.new_version else "they are refused without --new-version"
    return f"{listed}{more}: {allowed}" if listed else ""


def _time(result: Estimate | None) -> str:
    if result is None or result.least is None or result.most is None:
        return "unknown"
    least, most = duration(result.least), duration(result.most)
    return least if least == most else f"{least} to {most}"


def _basis(estimate: Estimate) -> str:
    """The measurement that the estimate is based on."""
    left_out = (
        f" {', '.join(estimate.unmeasured[:5])} gave no sample and is not included."
        if estimate.unmeasured
        else ""
    )
    if not estimate.measured:
        return f"No source gave a sample.{left_out}"
    return (
        f"Measured now: {in_units(estimate.sampled)} from {counted(estimate.measured, 'host')}, from this "
        f"machine, on one connection per host. The lower figure assumes that {estimate.connections} "
        "connections (ARKLINE_DOWNLOAD_THREADS) are so many times as fast, the higher one that they are not "
        "faster. Not included: waiting behind other jobs, processing, storing, and files of unknown "
        f"size.{left_out}"
    )


def _space(space: SpaceNeed | None) -> str:
    if space is None:
        return ""
    fit = {
        Fit.ALL_NOW: "all fit now",
        Fit.IN_TURN: "every object fits now, but not all at once: some would wait until others end",
        Fit.SOME_WAIT: f"{counted(space.waiting, 'object')} would have to wait for space",
        Fit.UNKNOWN: (
            "unknown whether they fit: the machine that answered has no working storage, or no job has "
            "used it yet"
        ),
    }[space.fit]
    return (
        f"{in_units(space.total)} of working storage in total, {in_units(space.largest)} for the largest "
        f"object; {fit}"
    )


def _warnings(result: DryRunResult) -> Iterator[str]:
    if hold := result.paused:
        by = by_whom(hold.by, hold.reason, hold.at)
        yield f"the queue has been paused{by}: the jobs would wait"
    if hold := result.hold:
        by = by_whom(hold.by, hold.reason, hold.at)
        yield f"collection {result.profile} has been on hold{by}: the jobs would be held"
    yield from result.repeated
    if more := result.repeated_count - len(result.repeated):
        yield f"and {more:,} more"


def failures(troubles: Iterable[Trouble]) -> None:
    for trouble in troubles:
        where = f"object {trouble.number}, {trouble.name}: " if trouble.number else ""
        screen.note(f"would fail: {where}{trouble.message}", "red")


def _problems(result: DryRunResult) -> None:
    failures(result.failures)
    for problem in result.doubts:
        screen.note(f"may fail: object {problem.number}, {problem.name}: {problem.message}")
    for warning in _warnings(result):
        screen.note(warning)
