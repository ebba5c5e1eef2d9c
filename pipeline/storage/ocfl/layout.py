"""The files that make a folder or a bucket an OCFL storage root, its checks, and the objects' folders.

The registered layout 0003 has readable folder names.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from pipeline.outcome import system

LAYOUT = "0003-hash-and-id-n-tuple-storage-layout"
_PARAMETERS: Mapping[str, object] = {
    "extensionName": LAYOUT,
    "digestAlgorithm": "sha256",
    "tupleSize": 3,
    "numberOfTuples": 3,
}
_DESCRIPTION = "Three folders of three letters from the sha256 of the identifier, then the identifier"
CONFIGURATION = f"extensions/{LAYOUT}/config.json"
DECLARATION = "0=ocfl_1.1"
DECLARATION_TEXT = b"ocfl_1.1\n"

_ENCAPSULATION_LIMIT = 100
"""Maximum characters of an encoded identifier; the layout cuts longer ones and appends a hash."""


def files() -> dict[str, bytes]:
    """The files of a new root by their path in it; the declaration comes last."""
    return {
        CONFIGURATION: _json(_PARAMETERS),
        "ocfl_layout.json": _json({"extension": LAYOUT, "description": _DESCRIPTION}),
        DECLARATION: DECLARATION_TEXT,
    }


@lru_cache(maxsize=64)
def object_path(identifier: str) -> Path:
    """The object's folder, relative to the storage root; to store a version asks for it nine times."""
    digest = hashlib.sha256(identifier.encode()).hexdigest()
    folder = re.sub(
        r"[^A-Za-z0-9_-]", lambda c: "".join(f"%{byte:02x}" for byte in c[0].encode()), identifier
    )
    if len(folder) > _ENCAPSULATION_LIMIT:
        folder = f"{folder[:_ENCAPSULATION_LIMIT]}-{digest}"
    return Path(digest[0:3], digest[3:6], digest[6:9], folder)


@lru_cache(maxsize=8)
def check(configuration: bytes | None, root: str) -> None:
    """StepFailed unless CONFIGURATION holds our layout; the same bytes are understood once."""
    try:
        parameters = json.loads(configuration or b"null")
    except ValueError:
        parameters = None
    if parameters != _PARAMETERS:
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
