"""The API's document as the project has it: to describe all routes anew takes FastAPI two seconds.

`test_web_routes` compares the file with the routes.
"""

import json
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]


def document() -> dict[str, Any]:
    """The caller's own copy, in the order of the routes."""
    described: dict[str, Any] = json.loads((PROJECT / "docs" / "api" / "openapi.json").read_text())
    return described
