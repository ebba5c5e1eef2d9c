"""The files that make a folder or a bucket an OCFL storage root, and the checks of a root."""

import json
from collections.abc import Iterable, Mapping

from pipeline.outcome import system
from pipeline.storage.ocfl.objects import (
    LAYOUT,
    LAYOUT_CONFIGURATION,
    LAYOUT_DESCRIPTION,
    ROOT_DECLARATION,
)

CONFIGURATION = f"extensions/{LAYOUT}/config.json"


def files() -> dict[str, bytes]:
    """The files of a new root by their path in it; the declaration comes last."""
    name, text = ROOT_DECLARATION
    return {
        CONFIGURATION: _json(LAYOUT_CONFIGURATION),
        "ocfl_layout.json": _json({"extension": LAYOUT, "description": LAYOUT_DESCRIPTION}),
        name: text,
    }


def check(configuration: bytes | None, root: str) -> None:
    """StepFailed unless CONFIGURATION holds our layout."""
    try:
        parameters = json.loads(configuration or b"null")
    except ValueError:
        parameters = None
    if parameters != LAYOUT_CONFIGURATION:
        raise system(f"the OCFL root {root} does not have arkline's layout, {LAYOUT}")


def check_free(names: Iterable[str], root: str, remedy: str) -> None:
    """StepFailed if a place with these names in it is anything but an unfinished root."""
    foreign = set(names) - {path.partition("/")[0] for path in files()}
    if foreign:
        raise system(
            f"the storage root {root} is neither an OCFL root nor empty (it contains "
            f"'{min(foreign)}'): {remedy}"
        )


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
