"""Notifications: what you are notified of, by mail or by a webhook."""

from __future__ import annotations

from json import loads
from typing import Annotated

import typer

from entrypoints.cli import api
from entrypoints.cli.options import Json, command
from entrypoints.render import screen
from entrypoints.render.screen import Column
from operations import notifications
from pipeline import humanize
from pipeline.notify.subscription import DigestMode, EventKind

Id = Annotated[str, typer.Argument(metavar="ID", help="The subscription, as `arkline notify list` shows it.")]


@command("arkline notify add --mail ann@example.org --event done --event failed")
def notify_add(
    event: Annotated[
        list[EventKind], typer.Option("--event", "-e", help="Tell me of this; may be repeated.")
    ],
    mail: Annotated[str, typer.Option("--mail", help="A mail address; it is asked to confirm first.")] = "",
    webhook: Annotated[str, typer.Option("--webhook", help="A URL that gets signed POST requests.")] = "",
    digest: Annotated[DigestMode, typer.Option("--digest", help="How often at most.")] = DigestMode.AT_ONCE,
    collection: Annotated[
        list[str] | None,
        typer.Option("--collection", "-c", help="Only this collection; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Get notifications of events by mail or by a webhook.

    The address of a mail gets one mail with a code, for `arkline notify confirm`. The key of a webhook is
    printed: requests are signed as in Standard Webhooks.
    """
    place = {"mail": mail, "webhook": webhook}
    asked = {**place, "events": event, "digest": digest, "collections": collection or ()}
    with api.site() as site:
        added = site.post("/v1/notifications", notifications.SubscriptionView, asked)
    if json:
        screen.emit(added)
    elif added.webhook:
        screen.say(added.signing_key)
        screen.note(f"{added.id}: the key of the webhook's signatures.", "")
    else:
        screen.say(f"{added.id}: {added.mail} gets a mail to confirm the address, and nothing else before.")


@command("arkline notify list")
def notify_list(json: Json = False) -> None:
    """List your notifications, and how the last delivery went; an operator sees everybody's."""
    with api.site() as site:
        listed = site.get("/v1/notifications", notifications.Subscriptions)
    if json:
        screen.emit(listed)
        return
    screen.table(
        listed.subscriptions,
        Column("id", lambda one: one.id),
        Column("of", lambda one: one.owner, wide=True),
        Column("to", lambda one: one.mail or one.webhook, long=True),
        Column("events", lambda one: ", ".join(one.events)),
        Column("digest", lambda one: one.digest, wide=True),
        Column("waiting", lambda one: f"{one.waiting:,}"),
        Column("last delivery", lambda one: humanize.ago(one.last) if one.last else "none"),
        Column("", _problem, long=True),
    )


def _problem(one: notifications.SubscriptionView) -> str:
    if not one.confirmed:
        return "not confirmed yet"
    return f"suspended: {one.error}" if one.suspended else one.error


@command("arkline notify confirm 3f9c21ab8d0e4f75 jrxwm4tsn5zq2aavk7yhd3be")
def notify_confirm(
    id: Id,
    code: Annotated[str, typer.Argument(metavar="CODE", help="The code in the mail.")],
    json: Json = False,
) -> None:
    """Confirm a mail address with the code that was mailed to it."""
    with api.site() as site:
        done = site.post_json(f"/v1/notifications/{api.quoted(id)}/confirm", {"code": code})
    screen.emit(done) if json else screen.say("The address is confirmed.")


@command("arkline notify test 3f9c21ab8d0e4f75")
def notify_test(id: Id, json: Json = False) -> None:
    """Send a test; suspended notifications begin again."""
    with api.site() as site:
        view = site.post(f"/v1/notifications/{api.quoted(id)}/test", notifications.SubscriptionView, {})
    screen.emit(view) if json else screen.say("A worker sends a test within seconds: `arkline notify list`.")


@command("arkline notify remove 3f9c21ab8d0e4f75")
def notify_remove(id: Id, json: Json = False) -> None:
    """End notifications; what waits is not sent."""
    with api.site() as site:
        answer = site.request("DELETE", f"/v1/notifications/{api.quoted(id)}")
    screen.emit(loads(answer)) if json else screen.say("The notifications were ended.")
