"""The settings that a storm changes, and why."""

from collections.abc import Mapping

LOWERED: Mapping[str, tuple[str, str]] = {
    "ARKLINE_OBJECT_BYTES": ("100000000", "a body without end would be read to a terabyte"),
    "ARKLINE_WORKING_CAPACITY": ("2000000000", "that of the machine which runs the storm is not filled"),
}
"""Setting -> its value in every storm, and the reason."""

SHORTENED: Mapping[str, tuple[str, str]] = {
    "ARKLINE_MAX_TRIES": ("2", "33 tries of a source that never answers take 12 hours"),
    "ARKLINE_BACKOFF": ("1", "the delay before the second try"),
    "ARKLINE_FETCH_TRIES": ("2", "4 requests of a file within a try"),
    "ARKLINE_CONNECT_TIMEOUT": ("3", "10 seconds"),
    "ARKLINE_READ_TIMEOUT": ("5", "60 seconds"),
}
"""Setting -> its value in a storm without `shipped`, and the shipped value."""


def changed(shipped: bool) -> dict[str, tuple[str, str]]:
    """The settings that a storm changes, with values and reasons."""
    return {**LOWERED, **({} if shipped else SHORTENED)}
