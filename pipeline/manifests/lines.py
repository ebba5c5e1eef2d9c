"""Line-by-line reading of lists in a deposit: manifests, and the files that an update deletes."""

from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline import causes, names
from pipeline.outcome import content

LIST_BYTES = 50_000_000
"""Maximum bytes of a list: 100,000 files with a sha512 and a path of 300 characters."""

LIST_ENTRIES = 100_000
"""Maximum entries of a list: as many as a container may have by default."""

LINE_CHARACTERS = 1 << 17


def read(
    path: Path, title: str, not_text: str, encoding: str = "utf-8", limit: int = LIST_BYTES
) -> Iterator[tuple[int, str]]:
    """The non-blank lines, without a byte order mark, with their numbers from 1.

    StepFailed(content) if a limit is exceeded, or, with the message `not_text`, if decoding fails.
    """
    check_size(path, title, limit)
    with path.open(encoding=encoding) as stream:
        number = 0
        while line := _next(stream.readline, title, not_text):
            number += 1
            if not line.endswith("\n") and len(line) >= LINE_CHARACTERS:
                raise content(f"{title} line {number} is longer than {LINE_CHARACTERS:,} characters")
            text = line.removesuffix("\n")
            if number == 1:
                text = text.removeprefix("\ufeff")
            if text.strip():
                yield number, text


def check_size(path: Path, title: str, limit: int = LIST_BYTES) -> None:
    if path.stat().st_size > limit:
        raise content(
            f"{title} is larger than {limit:,} bytes, its limit: divide the object or shorten the list"
        )


def check_entries(count: int, title: str, files: int) -> None:
    """StepFailed(content) if a list has more entries than LIST_ENTRIES and than there are `files`."""
    if count > max(LIST_ENTRIES, files):
        message = f"{title} has more than {max(LIST_ENTRIES, files):,} entries: divide the object"
        raise content(message).because(causes.LIMIT_EXCEEDED(limit="of entries in a list"))


def _next(readline: Callable[[int], str], title: str, not_text: str) -> str:
    try:
        return readline(LINE_CHARACTERS)
    except UnicodeError as error:
        raise content(f"{title} {not_text}") from error


DELETION_LIST = "mrt-delete.txt"
_TITLE = f"producer/{DELETION_LIST}"


def read_deletion_list(producer: Path) -> Iterator[str]:
    """Logical paths that the update deletes; StepFailed(content) if a line is not a path."""
    not_text = "is not UTF-8: save it as UTF-8 and submit again"
    paths: dict[str, None] = {}
    for number, line in read(producer / DELETION_LIST, _TITLE, not_text):
        try:
            paths[f"{names.PRODUCER}{names.safe_name(line)}"] = None
        except names.UnsafeName as error:
            raise content(f"{_TITLE} line {number}: {error}") from error
        check_entries(len(paths), _TITLE, 0)
    yield from paths
