"""GET /v1: where to go, who the caller is, and what the caller may do."""

from importlib.metadata import version

from fastapi import APIRouter, Request

from entrypoints.web.authentication import Caller
from pipeline.principal import Interface, Role
from pipeline.records import Record

router = APIRouter(prefix="/v1", tags=["about"])


class WhoAmI(Record):
    name: str
    role: Role
    collections: frozenset[str] | None
    """None: all collections."""
    interface: Interface
    roles: tuple[Role, ...]
    """The caller's role and those that it includes."""


class About(Record):
    version: str
    caller: WhoAmI
    links: dict[str, str]


@router.get("", summary="Links, version, and the rights of the caller")
def about(request: Request, caller: Caller) -> About:
    app = request.app
    links = {
        path.removeprefix("/v1/"): path
        for path in sorted(app.openapi()["paths"])
        if path.startswith("/v1/") and "{" not in path and "get" in app.openapi()["paths"][path]
    }
    return About(
        version=version("arkline"),
        caller=WhoAmI(
            name=caller.name,
            role=caller.role,
            collections=caller.collections,
            interface=caller.interface,
            roles=tuple(role for role in Role if caller.role.includes(role)),
        ),
        links={**links, "openapi": "/openapi.json"},
    )
