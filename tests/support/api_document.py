"""The API's document: as the project has it, or described anew, which takes FastAPI two seconds."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from entrypoints.web.app import create_app

PROJECT = Path(__file__).parents[2]


def document() -> dict[str, Any]:
    """The caller's own copy, with its keys in the order of the alphabet.

    `test_web_routes` compares the file with the routes.
    """
    described: dict[str, Any] = json.loads((PROJECT / "docs" / "api" / "openapi.json").read_text())
    return described


@cache
def in_order_of_the_routes() -> dict[str, Any]:
    return create_app(None).openapi()
