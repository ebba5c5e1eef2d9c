"""`arkline check`, and its older names `audit` and `reconcile`: whether the stores agree."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from entrypoints.cli import api, counting, exit_codes
from entrypoints.cli import console as screen
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import Json, SharedOptions, command
from entrypoints.cli.render import check as drawn
from operations import operator as verbs
from operations.checks import aliases
from operations.checks import check as checking
from pipeline.errors import UsageRefused

if TYPE_CHECKING:
    from operations.checks.check import CheckView, Scope

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
    scopes = checking.Scope
    scope = scopes.RECORD if record else scopes.JOBS if jobs else scopes.ALL
    view = _check(options, scope, content=content, repair=repair)
    screen.emit(view) if options.json else drawn.show(view)
    raise typer.Exit(exit_codes.of_check(view))


@command("arkline audit --json")
def audit(record: OfRecord = False, content: Content = False, json: Json = False) -> None:
    """The older name of `check --jobs`.

    Exit 4 if storage lacks what was stored, 1 if there are other findings, 3 if storage or inventory cannot
    be reached.
    """
    scope = checking.Scope.RECORD if record else checking.Scope.JOBS
    view = _check(SharedOptions(), scope, content=content)
    old = aliases.audit_view(view)
    screen.emit(old) if json else drawn.show(view)
    raise typer.Exit(exit_codes.of_audit(old))


@command("arkline reconcile --repair --reason 'inventory restored'", "reason", "by", "json")
def reconcile(options: SharedOptions, repair: Repair = False) -> None:
    """The older name of `check`.

    Exit 4 if storage lacks what was stored, 1 if other differences are left.
    """
    view = aliases.reconcile_view(_check(options, checking.Scope.ALL, repair=repair))
    screen.emit(view) if options.json else drawn.show(view)
    raise typer.Exit(exit_codes.of_check(view))


def _check(options: SharedOptions, scope: Scope, *, content: bool = False, repair: bool = False) -> CheckView:
    if (remote := api.client()) is not None:
        if not repair:
            return remote.get("/v1/check", checking.CheckView, scope=scope, content=content)
        return remote.post("/v1/check", checking.CheckView, {"reason": options.reason, "content": content})
    with (
        common.operator(options) as operator,
        screen.interruptible() as interrupted,
        counting.counter("versions and jobs") as count,
    ):
        attended = replace(operator, run=verbs.Run(should_stop=interrupted))
        return checking.check(attended, scope, content=content, repair=repair, on_progress=count)
