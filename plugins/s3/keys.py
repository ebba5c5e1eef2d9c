"""Values of a bucket: what a key holds, and a write that was refused. Loads no boto3."""

from collections.abc import Mapping
from dataclasses import dataclass, field

CONNECTIONS = 8
"""Parallel requests of one job: a request spends most of its time waiting for the server."""


class Conflict(Exception):
    """The key has changed since it was read; nothing was written."""


@dataclass(frozen=True)
class KeyContent:
    """The content of a key at one moment."""

    data: bytes
    etag: str
    metadata: Mapping[str, str] = field(default_factory=dict)
