"""A depositor's list of files that an update deletes: one path per line, relative to `producer/`."""

from collections.abc import Iterator
from pathlib import Path

from pipeline import names
from pipeline.manifests import lines
from pipeline.outcome import content

NAME = "mrt-delete.txt"
_TITLE = f"producer/{NAME}"


def read(producer: Path) -> Iterator[str]:
    """Logical paths that the update deletes; StepFailed(content) if a line is no path."""
    not_text = "is not UTF-8: save it as UTF-8 and submit again"
    paths: dict[str, None] = {}
    for number, line in lines.read(producer / NAME, _TITLE, not_text):
        try:
            paths[f"{names.PRODUCER}{names.safe_name(line)}"] = None
        except names.UnsafeName as error:
            raise content(f"{_TITLE} line {number}: {error}") from error
        lines.check_entries(len(paths), _TITLE, 0)
    yield from paths
