"""The routers of the core API. They refuse a query parameter that the operation does not have.

With a misspelled `dry_run` it would act.
"""

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from entrypoints.web.problems import RESPONSES


def api_router(prefix: str, tag: str, *needed: Any) -> APIRouter:
    """A router of the core API; `needed`: further dependencies of all its routes, made by `Depends`."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        dependencies=[Depends(refuse_unknown), *needed],
        responses=RESPONSES,
    )


async def refuse_unknown(request: Request) -> None:
    """Raises RequestValidationError with the parameters that the route lacks."""
    given, route = request.query_params.keys(), request.scope["route"]
    if not given:
        return
    assert isinstance(route, APIRoute)
    if unknown := given - set(_names(route.dependant)):
        raise RequestValidationError(
            [{"type": "extra_forbidden", "loc": ("query", name), "msg": ""} for name in sorted(unknown)]
        )


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for needed in dependant.dependencies:
        yield from _names(needed)
