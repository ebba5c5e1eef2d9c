"""What can still be read of a damaged record: every field, or every entry of a list, that is valid alone."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import ValidationError

from pipeline.records import BatchHistoryEntry, HistoryEntry, Record

T = TypeVar("T", bound=Record)
E = TypeVar("E", HistoryEntry, BatchHistoryEntry)


def fields(kind: type[T], data: bytes, defaults: Mapping[str, Any]) -> T:
    """The record with the valid fields of `data`, else those of `defaults`, which must be valid."""
    parsed = _parsed(data)
    values: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
    while True:
        try:
            return kind.model_validate_json(json.dumps({**defaults, **values}))
        except ValidationError as error:
            invalid = {str(problem["loc"][0]) for problem in error.errors() if problem["loc"]}
            if not values:
                raise
            valid = {name: value for name, value in values.items() if name not in invalid}
            # an alias names no field that is there, or the fields contradict one another
            values = valid if len(valid) < len(values) else {}


def entries(kind: type[E], data: bytes) -> tuple[E, ...]:
    """The valid entries of a history, in their order."""
    parsed = _parsed(data)
    valid: list[E] = []
    for entry in parsed if isinstance(parsed, list) else ():
        with suppress(ValidationError):
            valid.append(kind.model_validate_json(json.dumps(entry)))
    return tuple(valid)


def _parsed(data: bytes) -> Any:
    """The JSON; None if there is none. `NaN` and `Infinity`, which Python accepts, are read as null."""
    try:
        return json.loads(data, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
