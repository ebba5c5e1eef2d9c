"""Tokens: who may use the API and the pages. For administrators of all collections."""

from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import Field

from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import AdminCaller
from entrypoints.web.context import site_of
from operations import tokens
from operations.tokens import NewToken, Tokens
from pipeline.inventory.tokens import TokenEntry
from pipeline.principal import Role
from pipeline.records import SentRecord

router = api_router("/v1/tokens", "tokens")

TokenName = Annotated[str, Path(min_length=1, max_length=100, examples=["harbour-scans"])]


class TokenRequest(SentRecord):
    name: str = Field(max_length=100, examples=["harbour-scans"])
    role: Role
    collections: frozenset[str] | None = Field(None, max_length=1000, description="null: all collections.")


@router.get("", summary="The tokens, without the tokens themselves")
def list_tokens(request: Request, caller: AdminCaller) -> Tokens:
    return Tokens(tokens=tokens.list_tokens(site_of(request).inventory(), caller))


@router.post("", status_code=201, summary="Create a token")
def create(request: Request, response: Response, caller: AdminCaller, body: TokenRequest) -> NewToken:
    """Only its SHA-256 is kept. A token that this one creates lives on when this one is revoked: `created_by`
    names it."""
    response.headers["Cache-Control"] = "no-store"
    inventory = site_of(request).inventory()
    return tokens.create_token(inventory, caller, body.name, body.role, body.collections)


@router.post("/{name}/revoke", summary="Revoke a token")
def revoke(request: Request, caller: AdminCaller, name: TokenName) -> TokenEntry:
    """It is refused everywhere within seconds. To revoke it again changes nothing."""
    return tokens.revoke(site_of(request).inventory(), caller, name)
