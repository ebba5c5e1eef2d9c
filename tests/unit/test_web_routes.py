"""Every route of the API has a rule that says who may use it, and the document of the API is current."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request

from entrypoints.web.app import create_app, routers
from entrypoints.web.middleware import receiving
from entrypoints.web.openapi import document
from entrypoints.web.pages import install
from entrypoints.web.routes.about import about
from pipeline.principal import Role
from tests.support import operators

PUBLIC = {
    "/health/live",
    "/health/ready",
    "/v1/errors",
    "/v1/errors/{code}",
    "/v1/login/device",
    "/v1/login/token",
}
"""What needs no token."""

OPERATORS_READ = {
    "/v1/audit",
    "/v1/check",
    "/v1/collections/{name}/actions",
    "/v1/collections/{name}/profile",
}
READ_BY_POST = {"/v1/objects/{ark:path}/proofs"}
"""What changes nothing, although it is asked for by POST."""

DEPOSITS = ("/v1/batches", "/v1/batches/files/", "/v1/uploads", "/v1/drafts", "/poster")

ROUTES = [
    route
    for router in routers()
    for route in router.routes
    if isinstance(route, APIRoute) and route.path.startswith(("/v1", "/health", "/poster", "/metrics"))
]


def roles(dependant: Dependant) -> Iterator[Role]:
    for part in dependant.dependencies:
        role = getattr(part.call, "role", None)
        if isinstance(role, Role):
            yield role
        yield from roles(part)


def rule(route: APIRoute) -> Role | None:
    """The role that the route must need, by what the route does."""
    if route.path in PUBLIC:
        return None
    if route.path in DEPOSITS[:1] or route.path.startswith(DEPOSITS[1:]):
        return Role.VIEWER if route.methods == {"GET"} and route.path in DEPOSITS[:1] else Role.DEPOSITOR
    if route.path == "/v1/login/end":
        return Role.VIEWER
    if route.path.startswith("/v1/tokens"):
        return Role.ADMIN
    if (
        route.path in READ_BY_POST
        or route.path.startswith("/v1/notifications")
        or (route.methods or set()) <= {"GET", "HEAD"}
    ):
        return Role.OPERATOR if route.path in OPERATORS_READ else Role.VIEWER
    return Role.OPERATOR


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{min(route.methods)} {route.path}")
def test_a_route_needs_the_role_of_its_rule(route: APIRoute) -> None:
    expected = rule(route)

    assert list(roles(route.dependant)) == ([] if expected is None else [expected])


def test_the_document_of_the_api_is_current() -> None:
    written = (Path(__file__).parents[2] / "docs" / "api" / "openapi.json").read_text()

    assert written == document(), "run: python -m entrypoints.web.openapi > docs/api/openapi.json"


def test_a_body_is_not_limited_where_files_are_received_and_nowhere_else() -> None:
    pages = (module.router for module in install.PAGES)
    unlimited = {(*(route.methods or ()), route.path) for route in receiving((*routers(), *pages))}

    assert unlimited == {
        ("POST", "/v1/uploads"),
        ("PUT", "/v1/drafts/{upload}"),
        ("PUT", "/v1/uploads/{upload}/{name:path}"),
        ("PATCH", "/v1/uploads/{upload}"),
        ("PATCH", "/v1/uploads/{upload}/{name:path}"),
        ("POST", "/poster/{verb}"),
        ("POST", "/poster/{verb}/{scheme}/{shoulder}/{objectid}"),
        ("POST", "/deposits"),
        ("POST", "/batches/{bid}/again"),
    }


def test_the_links_are_those_of_the_document_and_wait_for_no_document() -> None:
    app = create_app(None)

    answer = about(Request({"type": "http", "app": app}), operators.ANN)

    assert "document" not in vars(app)
    readable = {
        path.removeprefix("/v1/"): path
        for path, operations in app.openapi()["paths"].items()
        if re.fullmatch("/v1/[^{]+", path) and "get" in operations
    }
    assert answer.links == {**readable, "openapi": "/openapi.json"}
