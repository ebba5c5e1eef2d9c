"""The API's document as `docs/api/openapi.json` has it; `tests/unit/test_web_routes.py` compares it with the
routes."""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "docs" / "api" / "openapi.json"


def document() -> dict[str, Any]:
    """A copy of the caller's own: FastAPI describes its routes in two seconds."""
    return dict(json.loads(FILE.read_text()))
