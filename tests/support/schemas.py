"""Published XML schemas, which are not part of the project: read from a folder beside it."""

import os
from functools import cache
from pathlib import Path

import pytest
from xmlschema import XMLSchema10

FOLDER = Path(os.environ.get("ARKLINE_SCHEMAS") or Path(__file__).parents[3] / "shared" / "schemas")


@cache
def _schema(name: str) -> XMLSchema10 | None:
    path = FOLDER / name
    return XMLSchema10(str(path), allow="local") if path.is_file() else None


def assert_valid(document: bytes, name: str = "premis.xsd") -> None:
    """The document follows the schema; the test is skipped where the schema is not."""
    schema = _schema(name)
    if schema is None:
        pytest.skip(f"{FOLDER / name} is not there: set ARKLINE_SCHEMAS to the folder that has {name}")
    assert [str(error) for error in schema.iter_errors(document.decode())] == []
