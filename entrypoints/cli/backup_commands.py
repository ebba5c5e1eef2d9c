"""`arkline backup` and `arkline restore`."""

from pathlib import Path
from typing import Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import counting
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import Json, SharedOptions, command
from entrypoints.cli.render import humanize
from operations import backup as copies
from operations import restore as restoring

SHOWN = 20
"""Versions that are listed on a screen; --json has all."""


@command("arkline backup /backups/2026-11-22")
def backup(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A new folder; it has its name once it is complete.")
    ],
    json: Json = False,
) -> None:
    """Copy the record and the inventory into a folder.

    The fleet may work meanwhile. Objects, profiles and working storage are not copied. An inventory in
    PostgreSQL is copied with pg_dump, if this machine has it.
    """
    opened.quiet_logs()
    with opened.session() as (session, settings), counting.counter("batches and jobs") as count:
        view = copies.back_up(session, settings, folder.absolute(), count)
    if json:
        screen.emit(view)
        return
    jobs = humanize.counted(view.manifest.jobs, "job")
    batches = humanize.counted(view.manifest.batches, "batch", "batches")
    screen.say(f"{view.folder}: {batches} and {jobs} of deployment {view.manifest.deployment.id}.")
    screen.say(f"The objects are in {view.manifest.storage}; replicate them by their own method.")
    if not view.inventory_copied:
        screen.note(
            "The inventory is not in the backup, because pg_dump is not on this machine: copy it now, on a "
            "machine that has it, with pg_dump --format=custom --file inventory.pgdump DATABASE",
            "yellow",
        )


@command("arkline restore /backups/2026-11-22 --yes", "yes", "json")
def restore(
    options: SharedOptions,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that `arkline backup FOLDER` wrote.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete the record in ZooKeeper first, if it is not empty.")
    ] = False,
    inventory: Annotated[
        bool, typer.Option("--inventory", help="Restore the lost inventory instead of the record.")
    ] = False,
) -> None:
    """Restore a lost record from a backup.

    The storage root and the inventory must be there and belong to the deployment of the backup. Stop workers
    and beats first. Numbers of batches and jobs continue beyond all that inventory and storage know. If the
    inventory is lost too, restore it first, with --inventory; afterwards run `arkline check --repair`.
    """
    opened.quiet_logs()
    if inventory:
        _inventory(options, folder.absolute())
        return
    if replace:
        common.confirm("Delete the record in ZooKeeper, and restore it from the backup?", options.yes)
    with opened.session() as (session, settings), counting.counter("entries") as count:
        view = restoring.restore(session, settings, folder.absolute(), replace=replace, on_progress=count)
    if options.json:
        screen.emit(view)
        return
    jobs = humanize.counted(view.manifest.jobs, "job")
    batches = humanize.counted(view.manifest.batches, "batch", "batches")
    screen.say(f"Restored {batches} and {jobs} as of {view.manifest.began:%Y-%m-%d %H:%M} UTC.")
    screen.say(f"Job numbers continue after {view.last_job}.")
    for version in view.listed[:SHOWN]:
        screen.note(f"only storage has {version}", "yellow")
    if view.unknown > SHOWN:
        screen.note(f"only storage has {view.unknown - SHOWN:,} further versions", "yellow")
    if view.unknown:
        screen.say("The fleet waits until `arkline check --repair` was run; then start beats and workers.")
    else:
        screen.say("Start beats and workers now.")


def _inventory(options: SharedOptions, folder: Path) -> None:
    with opened.session() as (session, settings):
        view = restoring.restore_inventory(session, settings, folder)
    if options.json:
        screen.emit(view)
        return
    screen.say(f"Restored the inventory {view.place} as of {view.manifest.began:%Y-%m-%d %H:%M} UTC.")
    screen.say("Jobs wait for it until `arkline check --repair` was run.")
