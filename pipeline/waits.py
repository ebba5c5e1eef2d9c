"""What a record that was handed back waits for."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

LONGEST_RETRY_AFTER = 3600.0
"""Seconds for which the request of a server to wait is obeyed; then the server is asked again."""


class WaitKind(StrEnum):
    """Codes are stable: they stand in records and reports."""

    HOST = "host"
    """A source host: a free connection, or the end of a pause that the host asked for."""
    SERVICE = "service"
    """A shared service that is out of order; the name is the outage's."""
    OBJECT = "object"
    """Another job of the same object."""
    SPACE = "space"
    """Room in working storage, for an attempt that found it full."""
    RETRY = "retry"
    """The next try after a transient fault of its own."""
    RECORD = "record"
    """Room for the jobs of a batch in ZooKeeper's memory."""
    REPAIR = "repair"
    """The repair of a znode that cannot be read."""


class WaitsFor(BaseModel):
    """What a record waits for since when; `kind` is a WaitKind, or one that only another release knows."""

    model_config = ConfigDict(frozen=True, extra="allow")
    kind: str
    name: str = ""
    since: datetime | None = None
    """None if an earlier release handed the record back."""
    listed: bool = False
    """`/waiting/JID` was created with this hand-back, and is deleted with the next dispatch or move."""


def read_earlier_release(values: Any) -> Any:
    """A status of before 0.2.1: with a delay it waited for a rate limit (`in_line`), a retry or a repair."""
    if not isinstance(values, dict) or not values.get("delay") or "waits_for" in values:
        return values
    untried = WaitKind.REPAIR if not values.get("tries") else WaitKind.RETRY
    kind = WaitKind.HOST if values.get("in_line") else untried
    return {**values, "waits_for": WaitsFor(kind=kind)}
