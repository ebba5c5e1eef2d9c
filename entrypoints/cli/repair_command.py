"""`arkline repair`."""

from typing import Annotated

import typer

from entrypoints.cli import api, completion
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import SharedOptions, command, read_id
from operations import bulk, operator
from pipeline.errors import UsageRefused


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
    done, refused = [], []
    with api.site(options.by) as site:
        for name in names:
            path, body = f"{api.path_of(name)}/repair", {"reason": options.reason}
            try:
                done.append(site.post(path, operator.VerbResult, body))
            except (api.RemoteFault, UsageRefused) as error:
                if len(names) == 1:
                    raise
                refused.append(bulk.Refusal(id=name, message=str(error)))
    outcome = bulk.Outcome(verb="repair", done=tuple(done), refused=tuple(refused))
    common.show(outcome, as_json=options.json, single=len(names) == 1)
