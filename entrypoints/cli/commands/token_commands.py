"""Tokens: who may use the REST API and the pages."""

from __future__ import annotations

from typing import Annotated

import typer

import pipeline.inventory.tokens
from entrypoints.cli import api
from entrypoints.cli.options import Json, command
from entrypoints.render import screen
from entrypoints.render.screen import Column
from operations import tokens
from pipeline import humanize
from pipeline.principal import Role

Name = Annotated[str, typer.Argument(metavar="NAME", help="The person or the program that has the token.")]


@command("arkline token create harbour-scans --role depositor --collection harbour")
def token_create(
    name: Name,
    role: Annotated[Role, typer.Option("--role", help="What the token allows.")],
    collection: Annotated[
        list[str] | None,
        typer.Option("--collection", "-c", help="Only this collection; may be repeated; default: all."),
    ] = None,
    json: Json = False,
) -> None:
    """Create a token and print it, once.

    Only its SHA-256 is kept. Roles, each with the rights of those before it: viewer, depositor, operator,
    admin. A depositor sees its own batches only.
    """
    body = {"name": name, "role": role, "collections": collection or None}
    with api.site(record=False, local=True) as site:
        created = site.post("/v1/tokens", tokens.NewToken, body)
    if json:
        screen.emit(created)
        return
    screen.say(created.token)
    screen.note(f"The token of {name}, which cannot be shown again.", "")


@command("arkline token list", ids="tokens.name")
def token_list(json: Json = False) -> None:
    """List the tokens, without the tokens themselves."""
    with api.site(record=False, local=True) as site:
        listed = site.get("/v1/tokens", tokens.Tokens)
    if json:
        screen.emit(listed)
        return
    screen.table(
        listed.tokens,
        Column("name", lambda entry: entry.name),
        Column("role", lambda entry: entry.role),
        Column("collections", lambda entry: ", ".join(sorted(entry.collections or {"all"})), long=True),
        Column("created", lambda entry: f"{entry.created:%Y-%m-%d} by {entry.created_by}", wide=True),
        Column("last used", lambda entry: humanize.ago(entry.used) if entry.used else "never"),
        Column("until", lambda entry: f"{entry.expires:%Y-%m-%d}" if entry.expires else "", wide=True),
        Column("", lambda entry: f"revoked {entry.revoked:%Y-%m-%d}" if entry.revoked else ""),
    )


@command("arkline token revoke harbour-scans", ids="name")
def token_revoke(name: Name, json: Json = False) -> None:
    """Revoke a token; it is refused everywhere within seconds."""
    with api.site(record=False, local=True) as site:
        entry = site.post(f"/v1/tokens/{api.quoted(name)}/revoke", pipeline.inventory.tokens.TokenEntry, {})
    screen.emit(entry) if json else screen.say(f"The token of {name} is revoked.")
