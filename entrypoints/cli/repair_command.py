"""`arkline repair`."""

from typing import Annotated

import typer

from entrypoints.cli import completion, sites
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import SharedOptions, command, read_id
from entrypoints.cli.remote import maintenance as remote_maintenance
from operations import bulk


@command("arkline repair jid0000000001 --reason 'disk error on zk2'", "reason", "by", "json")
def repair(
    options: SharedOptions,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            parser=read_id,
            autocompletion=completion.ids,
            help="Jobs or batches that cannot be read.",
        ),
    ],
) -> None:
    """Replace znodes of a job or batch that cannot be read.

    A job that has not ended fails, and its place, lock and reserved space are freed. The history keeps the
    damaged bytes. Restoring the znode from a backup loses less, if there is one.
    """
    if (remote := sites.client()) is not None:
        outcome = remote_maintenance.repair(remote, names, options.reason)
    else:
        with common.operator(options) as operator, common.long_run(operator) as running:
            outcome = bulk.repair_many(running, names)
    common.show(outcome, as_json=options.json, single=len(names) == 1)
