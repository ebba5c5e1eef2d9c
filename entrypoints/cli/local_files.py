"""Uploading files of this machine, with a progress bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrypoints.cli import console as screen
from entrypoints.cli.render import humanize
from operations import local_deposit as deposits
from pipeline import names
from pipeline.working_storage import capacity

if TYPE_CHECKING:
    from operations.dry_run_result import DryRunResult
    from operations.local_deposit import LocalDeposit, Payload, Uploader

HIDDEN_NAMED = 3
"""Hidden files that a remark names."""


def upload(deposit: LocalDeposit, uploader: Uploader, key: str) -> Payload:
    if not sys.stderr.isatty():
        return deposits.upload_deposit(deposit, uploader, key)
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=screen.err(), transient=True) as meter:
        task = meter.add_task("uploading", total=deposit.bytes)
        return deposits.upload_deposit(deposit, uploader, key, lambda size: meter.advance(task, size))


def describe(deposit: LocalDeposit) -> None:
    """What is deposited, for the person at the terminal."""
    files = humanize.counted(len(deposit.files), "file")
    objects = humanize.counted(deposit.objects, "object")
    screen.note(
        f"{deposit.source}: {objects} of {files}, {capacity.in_units(deposit.bytes)}, submitted as "
        f"{deposit.type.label}",
        "",
    )
    remark(deposit)


def remark(deposit: LocalDeposit) -> None:
    """What the person may not mean to deposit, or to leave out."""
    if deposit.hidden:
        screen.note(f"hidden files are deposited, too: {_first(deposit.hidden)}")
    if deposit.empty:
        screen.note(f"folders without files are not deposited: {_first(deposit.empty)}")


def _first(paths: Sequence[str]) -> str:
    more = len(paths) - HIDDEN_NAMED
    return ", ".join(map(names.quote_name, paths[:HIDDEN_NAMED])) + (f" and {more} more" if more > 0 else "")


def known(judged: DryRunResult) -> None:
    """Say which objects are here already, and whether they get a version."""
    for identifier, ark in judged.known.items():
        consequence = "this deposit becomes its next version"
        if any(ark in trouble.message for trouble in judged.failures):
            consequence = "this deposit will be refused, because --new-version was not given"
        screen.note(f"'{identifier}' is {ark} already: {consequence}")
