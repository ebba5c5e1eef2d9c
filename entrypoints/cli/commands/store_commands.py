"""Commands for record, storage and inventory: init, check (audit, reconcile), backup, restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import operations.checks.check
from entrypoints.cli import acting, api, context, exit_codes
from entrypoints.cli.options import Json, SharedOptions, command
from entrypoints.render import findings, screen
from entrypoints.render.remedies import hints
from operations.checks import aliases, deployment
from pipeline import humanize
from pipeline.errors import Action, Remedy, UsageRefused

if TYPE_CHECKING:
    from operations.checks.check import CheckView, Scope


@command("arkline init")
def init(
    missing: Annotated[
        bool,
        typer.Option(
            "--missing",
            help="Give the id also to a store that is lost, and starts empty, or that an older release made.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Give record, storage root and inventory one deployment id.

    Workers do this themselves when all three are empty. Stores that have an id are compared, and nothing is
    changed. Run this where the workers run.
    """
    with context.site() as site:
        view = deployment.initialize(site, missing=missing)
    if json:
        screen.emit(view)
        return
    screen.say(f"Deployment {view.id}, since {view.created:%Y-%m-%d %H:%M} UTC.")
    for store in view.stores:
        done = "got this id" if store.initialized else "has this id"
        screen.say(f"  {store.service}: {store.place} {done}")
    if view.outdated:
        screen.note(f"jobs wait: {view.outdated}")
        for hint in hints((Remedy(Action.RECONCILE),)):
            screen.note(f"try {hint}", "")


Repair = Annotated[bool, typer.Option("--repair", help="Enter, reserve and raise what can be repaired.")]
OfRecord = Annotated[
    bool, typer.Option("--record", help="Check the record in ZooKeeper alone; no store is opened.")
]
Content = Annotated[bool, typer.Option("--content", help="Also read every byte of the versions.")]


@command("arkline check --repair --reason 'inventory restored'", "reason", "by", "json")
def check(
    options: SharedOptions,
    jobs: Annotated[
        bool,
        typer.Option("--jobs", help="Of the stores, only the versions of jobs in the record."),
    ] = False,
    record: OfRecord = False,
    content: Content = False,
    repair: Repair = False,
) -> None:
    """Check that record, storage and inventory agree.

    Without --repair nothing is changed. With --repair, versions that only storage has are entered in the
    inventory, and counters are raised; nothing is deleted. Workers may continue. Ctrl-C stops, and the
    same command continues. Exit 4 if storage lacks what was stored, 3 if storage or inventory cannot be
    reached, 1 if other differences are left.
    """
    if (jobs and record) or (record and (content or repair)) or (jobs and repair):
        raise UsageRefused("choose one of --record, --jobs and --repair; --record reads no content")
    scopes = operations.checks.check.Scope
    scope = scopes.RECORD if record else scopes.JOBS if jobs else scopes.ALL
    view = _check(options, scope, content=content, repair=repair)
    screen.emit(view) if options.json else findings.show(view)
    raise typer.Exit(exit_codes.of_check(view))


@command("arkline audit --json")
def audit(record: OfRecord = False, content: Content = False, json: Json = False) -> None:
    """The older name of `check --jobs`.

    Exit 4 if storage lacks what was stored, 1 if there are other findings, 3 if storage or inventory cannot
    be reached.
    """
    scope = operations.checks.check.Scope.RECORD if record else operations.checks.check.Scope.JOBS
    view = _check(SharedOptions(), scope, content=content)
    old = aliases.audit_view(view)
    screen.emit(old) if json else findings.show(view)
    raise typer.Exit(exit_codes.of_audit(old))


@command("arkline reconcile --repair --reason 'inventory restored'", "reason", "by", "json")
def reconcile(options: SharedOptions, repair: Repair = False) -> None:
    """The older name of `check`.

    Exit 4 if storage lacks what was stored, 1 if other differences are left.
    """
    view = aliases.reconcile_view(_check(options, operations.checks.check.Scope.ALL, repair=repair))
    screen.emit(view) if options.json else findings.show(view)
    raise typer.Exit(exit_codes.of_check(view))


def _check(options: SharedOptions, scope: Scope, *, content: bool = False, repair: bool = False) -> CheckView:
    kind, body = operations.checks.check.CheckView, {"reason": options.reason, "content": content}
    with api.site(options.by, local=True) as site, acting.attended(site, acting.counted("versions and jobs")):
        if repair:
            return site.post("/v1/check", kind, body)
        return site.get("/v1/check", kind, scope=scope, content=content)


SHOWN = 20
"""Maximum number of versions listed on a screen; --json has all."""


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
    with context.site() as site, screen.counting(acting.counted("batches and jobs")) as count:
        view = deployment.back_up(site, folder.absolute(), lambda number: count(number, 0))
    if json:
        screen.emit(view)
        return
    jobs = humanize.counted(view.manifest.jobs, "job")
    batches = humanize.counted(view.manifest.batches, "batch", "batches")
    screen.say(f"{view.folder}: {batches} and {jobs} of deployment {view.manifest.deployment.id}.")
    screen.say(f"The objects are in {view.manifest.storage}; replicate them by their own method.")
    if not view.noted:
        screen.note(
            "The backup is complete. ZooKeeper did not answer when it was to be noted in the record, so "
            "`arkline doctor` does not count it.",
            "yellow",
        )
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
    if inventory:
        _inventory(options, folder.absolute())
        return
    if replace:
        acting.confirm("Delete the record in ZooKeeper, and restore it from the backup?", options.yes)
    with context.site() as site, screen.counting(acting.counted("entries")) as count:
        view = deployment.restore(
            site, folder.absolute(), replace=replace, on_progress=lambda number: count(number, 0)
        )
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
    with context.site() as site:
        view = deployment.restore_inventory(site, folder)
    if options.json:
        screen.emit(view)
        return
    screen.say(f"Restored the inventory {view.place} as of {view.manifest.began:%Y-%m-%d %H:%M} UTC.")
    screen.say("Jobs wait for it until `arkline check --repair` was run.")
