"""`arkline reconcile`: compares record, storage and inventory, and repairs what can be repaired."""

from typing import Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import counting, exit_codes
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import SharedOptions, command
from entrypoints.cli.render import reconcile as drawn
from operations import reconcile as comparison


@command("arkline reconcile --repair --reason 'inventory restored'", "reason", "by", "json")
def reconcile(
    options: SharedOptions,
    repair: Annotated[
        bool, typer.Option("--repair", help="Enter, reserve and raise what can be repaired.")
    ] = False,
) -> None:
    """Compare record, storage and inventory.

    Without --repair nothing is changed. With --repair, versions that only storage has are entered in the
    inventory, and counters are raised; nothing is deleted. Run this where the workers run; they may work
    meanwhile. Ctrl-C stops, and the same command continues. Exit 4 if storage lacks what was stored, 1 if
    other differences are left.
    """
    with (
        common.operator(options) as operator,
        screen.interruptible() as interrupted,
        counting.counter("versions and jobs") as count,
    ):
        view = comparison.reconcile(operator, repair=repair, on_progress=count, stopped=interrupted)
    screen.emit(view) if options.json else drawn.show(view)
    raise typer.Exit(exit_codes.of_reconciliation(view))
