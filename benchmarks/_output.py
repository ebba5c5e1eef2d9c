"""Printing a benchmark's figures: a table, or with --json one line."""

import json
import sys
from collections.abc import Mapping


def tell(result: Mapping[str, object]) -> None:
    if "--json" in sys.argv:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:32} {value}")
