"""Prints the OpenAPI document of the API: `python -m entrypoints.web.openapi > docs/api/openapi.json`."""

import json
import sys

from entrypoints.web.app import create_app


def document() -> str:
    return json.dumps(create_app(None).openapi(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
