"""Callbacks to depositors' systems: those that are owed, a delivery now, and a test of a receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from entrypoints.cli import api, completion
from entrypoints.cli import console as screen
from entrypoints.cli.console import Column
from entrypoints.cli.options import Json, SharedOptions, command, read_jid
from entrypoints.cli.render import humanize
from operations import callbacks

if TYPE_CHECKING:
    from operations.callbacks import CallbackAnswer

PAGE = 500


@command("arkline callback list")
def callback_list(json: Json = False) -> None:
    """List the callbacks of failed jobs that were not delivered yet."""
    with api.site() as site:
        page = site.get("/v1/callbacks", callbacks.OwedPage, limit=PAGE)
    if json:
        screen.emit(page)
        return
    screen.table(
        page.callbacks,
        Column("job", lambda row: row.jid),
        Column("collection", lambda row: row.collection),
        Column("owed", lambda row: humanize.ago(row.since)),
        Column("tries", lambda row: str(row.tries)),
        Column("next try", lambda row: f"{row.next_try:%Y-%m-%d %H:%M:%S}"),
        Column("last try", lambda row: row.message, long=True),
    )
    if page.next is not None:
        screen.note(f"These are {len(page.callbacks):,} of {page.owed:,} callbacks.", "")


@command(
    "arkline callback deliver jid0000000001 --reason 'their server was replaced'", "reason", "by", "json"
)
def callback_deliver(
    options: SharedOptions,
    jid: Annotated[
        str,
        typer.Argument(metavar="JID", parser=read_jid, autocompletion=completion.ids, help="An ended job."),
    ],
) -> None:
    """Deliver the callback of a job now, also if it was delivered or given up.

    One request is sent, over the API from the site. Exit 1 if the receiver did not take it.
    """
    with api.site(options.by) as site:
        body = {"reason": options.reason}
        answer = site.post(f"/v1/callbacks/{jid}/deliver", callbacks.CallbackAnswer, body)
    _show(answer, as_json=options.json)


@command("arkline callback test demo", "by", "json")
def callback_test(
    options: SharedOptions,
    name: Annotated[
        str, typer.Argument(metavar="PROFILE", autocompletion=completion.profiles, help="A profile.")
    ],
) -> None:
    """Send a signed test callback to a profile's receiver.

    One request is sent, over the API from the site; its jobStatus is TEST. Exit 1 if the receiver did not
    take it.
    """
    with api.site(options.by) as site:
        path = f"/v1/collections/{api.quoted(name)}/test-callback"
        answer = site.post(path, callbacks.CallbackAnswer, {})
    _show(answer, as_json=options.json)


def _show(answer: CallbackAnswer, *, as_json: bool) -> None:
    if as_json:
        screen.emit(answer)
    else:
        what = f"the callback of {answer.jid}" if answer.jid else "a test callback"
        signed = "signed" if answer.signed else "not signed: there is no secret for this profile"
        screen.say(f"{answer.receiver} was sent {what} ({signed}): {answer.message}")
    raise typer.Exit(int(not answer.delivered))
