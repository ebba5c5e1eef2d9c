"""A rehearsal, drawn."""

from entrypoints.cli import console as screen
from entrypoints.cli.console import Column
from entrypoints.cli.render.humanize import counted, duration
from operations.download_estimate import Estimate
from operations.dry_run import DryRunResult
from pipeline.working_storage.capacity import in_units


def rehearsal(found: DryRunResult) -> None:
    screen.facts(
        (
            ("nothing was submitted", "this is what would happen"),
            ("known", f"its key was submitted before, as {found.submitted_before}: nothing would happen")
            if found.submitted_before
            else ("", None),
            ("payload", f"{found.payload_url} ({found.payload_type}, {found.submission_mode})"),
            ("objects", _objects(found)),
            ("files", f"{found.files:,}, {in_units(found.bytes)}{_unsized(found)}"),
            ("asked", f"{counted(found.asked, 'file')} of {found.files:,} at the source"),
            ("digests", _digests(found)),
            ("queue", _queue(found)),
            ("space", found.space),
            ("known local ids", _known(found)),
            ("download", _time(found.estimate)),
        )
    )
    if found.estimate is not None:
        screen.note(found.estimate.basis, "dim")
    if found.hosts:
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
                for host in found.hosts
            ),
        )
    _troubles(found)


def _objects(found: DryRunResult) -> str:
    unread = f"; {found.unread:,} of their manifests were not read" if found.unread else ""
    return f"{found.jobs:,}, of which {found.failing:,} would fail{unread}"


def _unsized(found: DryRunResult) -> str:
    return f" and {counted(found.unsized, 'file')} of unknown size" if found.unsized else ""


def _digests(found: DryRunResult) -> str:
    if not found.without_digest:
        return "every file has one"
    return f"{counted(found.without_digest, 'file')} without: damage on the way would go unseen"


def _queue(found: DryRunResult) -> str:
    if found.priority is None:
        return ""
    return f"priority {found.priority:02d}; {counted(found.ahead, 'job')} wait now"


def _known(found: DryRunResult) -> str:
    listed = ", ".join(f"{local_id} is {ark}" for local_id, ark in found.known.items())
    more = (
        f" and {found.known_count - len(found.known):,} more" if found.known_count > len(found.known) else ""
    )
    return f"{listed}{more}: they get a new version" if listed else ""


def _time(found: Estimate | None) -> str:
    if found is None or found.least is None or found.most is None:
        return "nobody can say how long"
    least, most = duration(found.least), duration(found.most)
    return least if least == most else f"{least} to {most}"


def _troubles(found: DryRunResult) -> None:
    for trouble in found.failures:
        where = f"object {trouble.number}, {trouble.name}: " if trouble.number else ""
        screen.note(f"would fail: {where}{trouble.message}", "red")
    for trouble in found.doubts:
        screen.note(f"may fail: object {trouble.number}, {trouble.name}: {trouble.message}")
    for warning in found.warnings:
        screen.note(warning)
