"""Shows the result of a dry run."""

from entrypoints.cli import console as screen
from entrypoints.cli.console import Column
from entrypoints.cli.render.humanize import counted, duration
from operations.download_estimate import Estimate
from operations.dry_run import DryRunResult
from pipeline.working_storage.capacity import in_units


def dry_run(result: DryRunResult) -> None:
    screen.facts(
        (
            ("dry run", "nothing was submitted"),
            ("known", f"batch {result.submitted_before} has the same idempotency key: nothing would happen")
            if result.submitted_before
            else ("", None),
            ("payload", f"{result.payload_url} ({result.payload_type}, {result.submission_mode})"),
            ("objects", _objects(result)),
            ("files", f"{result.files:,}, {in_units(result.bytes)}{_unsized(result)}"),
            ("probed", f"{counted(result.asked, 'file')} of {result.files:,}"),
            ("digests", _digests(result)),
            ("queue", _queue(result)),
            ("space", result.space),
            ("known local ids", _known(result)),
            ("download", _time(result.estimate)),
        )
    )
    if result.estimate is not None:
        screen.note(result.estimate.basis, "dim")
    if result.hosts:
        screen.table(
            (
                Column("host"),
                Column("files", right=True),
                Column("bytes", right=True),
                Column("answers in", right=True),
                Column("sample", right=True),
            ),
            (
                (
                    host.host,
                    f"{host.files:,}",
                    in_units(host.bytes),
                    "" if host.latency is None else f"{host.latency * 1000:.0f} ms",
                    "none" if host.bytes_per_second is None else f"{in_units(host.bytes_per_second)}/s",
                )
                for host in result.hosts
            ),
        )
    _problems(result)


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
    return f"{listed}{more}: they get a new version" if listed else ""


def _time(result: Estimate | None) -> str:
    if result is None or result.least is None or result.most is None:
        return "unknown"
    least, most = duration(result.least), duration(result.most)
    return least if least == most else f"{least} to {most}"


def _problems(result: DryRunResult) -> None:
    for problem in result.failures:
        where = f"object {problem.number}, {problem.name}: " if problem.number else ""
        screen.note(f"would fail: {where}{problem.message}", "red")
    for problem in result.doubts:
        screen.note(f"may fail: object {problem.number}, {problem.name}: {problem.message}")
    for warning in result.warnings:
        screen.note(warning)
