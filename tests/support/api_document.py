"""The API's document, described once in a process: FastAPI needs two seconds for all routes."""

from copy import deepcopy
from functools import cache
from typing import Any

from entrypoints.web.app import create_app


def document() -> dict[str, Any]:
    """A copy of the caller's own, in the order of the routes."""
    return deepcopy(_described())


@cache
def _described() -> dict[str, Any]:
    return create_app(None).openapi()
