"""Values of a bucket: a key's content, and a refused write. Does not load boto3."""

from collections.abc import Mapping
from dataclasses import dataclass, field

CONNECTIONS = 8
"""Parallel requests per job: a request spends most of its time waiting for the server."""


class Refused(Exception):
    """The server refused because of the key's state: taken, changed, or missing; nothing was written."""


class Absent(Refused):
    """The key or the upload does not exist."""


@dataclass(frozen=True)
class KeyContent:
    """The content of a key at one moment."""

    data: bytes
    etag: str
    metadata: Mapping[str, str] = field(default_factory=dict)
