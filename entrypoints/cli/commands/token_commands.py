"""Tokens: who may use the REST API and the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from entrypoints.cli import context as opened
from entrypoints.cli.options import Json, command
from entrypoints.render import console as screen
from entrypoints.render.console import Column
from operations import tokens
from pipeline import humanize
from pipeline.principal import Role

if TYPE_CHECKING:
    from pipeline.inventory.sql import SqlInventory

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
    created = tokens.create_token(_inventory(), opened.principal(), name, role, collection or None)
    if json:
        screen.emit({**created.entry.model_dump(mode="json"), "token": created.token})
        return
    screen.say(created.token)
    screen.note(f"The token of {name}, which cannot be shown again.", "")


@command("arkline token list")
def token_list(json: Json = False) -> None:
    """List the tokens, without the tokens themselves."""
    entries = tokens.list_tokens(_inventory(), opened.principal())
    if json:
        screen.emit({"tokens": entries})
        return
    screen.table(
        entries,
        Column("name", lambda entry: entry.name),
        Column("role", lambda entry: entry.role),
        Column("collections", lambda entry: ", ".join(sorted(entry.collections or {"all"})), long=True),
        Column("created", lambda entry: f"{entry.created:%Y-%m-%d} by {entry.created_by}", wide=True),
        Column("last used", lambda entry: humanize.ago(entry.used) if entry.used else "never"),
        Column("", lambda entry: f"revoked {entry.revoked:%Y-%m-%d}" if entry.revoked else ""),
    )


@command("arkline token revoke harbour-scans")
def token_revoke(name: Name, json: Json = False) -> None:
    """Revoke a token; it is refused everywhere within seconds."""
    entry = tokens.revoke(_inventory(), opened.principal(), name)
    screen.emit(entry) if json else screen.say(f"The token of {name} is revoked.")


def _inventory() -> SqlInventory:
    from pipeline.inventory.sql import open_inventory

    return open_inventory(opened.settings().inventory)
