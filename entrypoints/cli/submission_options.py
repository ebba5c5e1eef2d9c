"""The options of `submit` as a submission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pydantic_core
import typer

from operations import submission as submissions
from pipeline import records
from pipeline.description import dublin_core as dc
from pipeline.errors import UsageRefused

DIGEST = "ALGORITHM:VALUE"
ELEMENT = "ELEMENT=VALUE"
TYPES = (
    "file, container, object-manifest, batch-manifest, container-batch-manifest or single-file-batch-manifest"
)


def read_digest(text: str) -> dict[str, str]:
    algorithm, separator, value = text.partition(":")
    if not separator:
        raise typer.BadParameter(f"'{text}' is not {DIGEST}")
    return {"algorithm": algorithm, "value": value}


def read_type(text: str) -> records.SubmissionType | None:
    try:
        return records.SubmissionType(text) if text else None
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' is not one of {TYPES}", param_hint="--type") from error


def read_elements(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    elements: dict[str, tuple[str, ...]] = {}
    for text in given:
        element, separator, value = text.partition("=")
        if not separator or element not in dc.ELEMENTS:
            raise typer.BadParameter(
                f"'{text}' is not {ELEMENT} with one of {', '.join(dc.ELEMENTS)}", param_hint="--dc"
            )
        elements[element] = (*elements.get(element, ()), value)
    return elements


def submission_of(given: dict[str, Any], chosen: records.SubmissionType | None) -> records.Submission:
    try:
        return records.Submission(
            **given,
            type=submissions.submission_type(given["payload_url"], chosen, given["payload_filename"]),
        )
    except pydantic_core.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = _option(str(first["loc"][0]))
        raise UsageRefused(f"{where}: {first['msg'].removeprefix('Value error, ')}") from error


_OPTIONS = {
    "profile_name": "--profile",
    "payload_url": "URL",
    "payload_filename": "--name",
    "submission_mode": "--mode",
    "dublin_core": "--dc",
    "response_type": "--response",
    "notification": "--notify",
}
"""Options whose names do not follow from the names of the fields."""


def _option(field: str) -> str:
    return _OPTIONS.get(field) or f"--{field.removeprefix('erc_').replace('_', '-')}"
