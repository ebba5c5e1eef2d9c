"""Uploading files of this machine, with a progress bar on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from entrypoints.cli import console as screen
from entrypoints.cli.render import humanize
from operations import local_deposit as deposits
from pipeline import names
from pipeline.working_storage import capacity

if TYPE_CHECKING:
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
    """Remarks on what is deposited, for the person at the terminal."""
    files = humanize.counted(len(deposit.files), "file")
    objects = humanize.counted(deposit.objects, "object")
    screen.note(
        f"{deposit.source}: {objects} of {files}, {capacity.in_units(deposit.bytes)}, submitted as "
        f"{deposit.type.label}",
        "",
    )
    if deposit.hidden:
        named = ", ".join(map(names.quote_name, deposit.hidden[:HIDDEN_NAMED]))
        more = len(deposit.hidden) - HIDDEN_NAMED
        screen.note(f"hidden files are deposited, too: {named}{f' and {more} more' if more > 0 else ''}")


def known(objects: dict[str, str]) -> None:
    """Say that a version will be added to objects that are here already."""
    for identifier, ark in objects.items():
        screen.note(f"'{identifier}' is {ark} already: this deposit becomes its next version")
