"""The check `pronom`: siegfried names each file's format by PRONOM's signatures.

pygfried carries siegfried, its signatures and Go's runtime, which starts threads when it is loaded and does
not survive a fork: it is imported where the check is made, in the process of its own.

While a file is read nothing else of the process runs: `CheckContext.alive` is called between files alone.
Random bytes take no time; a gigabyte of zeros, the worst known case, takes some five seconds.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from pipeline.checks import (
    CODE_LIMIT,
    FORMAT_IDENTIFICATION,
    MESSAGE_LIMIT,
    Access,
    CheckContext,
    CheckedFile,
    CheckFinding,
    CheckVerdict,
)
from pipeline.names import one_line

if TYPE_CHECKING:
    from pygfried import DetailedIdentifyResult, File, Match

UNKNOWN_FORMAT = "unknown-format"
EMPTY = "empty"
UNREADABLE = "unreadable"

ENVIRONMENT = (("GOMAXPROCS", "1"),)
"""One file is read at a time. Go would have a processor for each of the machine, which each reserve 64 MB of
address space; and with more than one, its monitor stays awake for 10 ms after each call, half of the check's
CPU for a small file."""

MEMORY = 4 << 30
"""Bytes of address space: Go reserves 1.7 GB of which it uses 0.1, and a file is mapped if there is room."""

_UNKNOWN = "UNKNOWN"
_EMPTY_SOURCE = "empty source"


class PronomCheck:
    name: ClassVar[str] = "pronom"
    event: ClassVar[str] = FORMAT_IDENTIFICATION
    access: ClassVar[Access] = Access(memory=MEMORY, environment=ENVIRONMENT)
    renewed: ClassVar[bool] = True
    settings: ClassVar[type[BaseModel] | None] = None

    def __init__(self, settings: None) -> None:
        import pygfried  # it starts threads, and is for this process only

        del settings
        self._scanner = pygfried.Scanner()
        self._version = _version(self._scanner.identify_many([]))

    @property
    def version(self) -> str:
        """Of siegfried and of its signatures."""
        return self._version

    def run(self, files: Iterable[CheckedFile], context: CheckContext) -> Iterator[CheckFinding]:
        for file in files:
            context.alive()
            yield from self._identified(file)

    def _identified(self, file: CheckedFile) -> Iterator[CheckFinding]:
        try:
            result = self._scanner.identify(str(file.source), detailed=True)
        except (OSError, UnicodeEncodeError) as error:
            yield _unchecked(file.path, UNREADABLE, f"The file cannot be read: {error}")
            return
        for identified in result["files"]:
            yield from findings(file.path, identified)


def _version(result: "DetailedIdentifyResult") -> str:
    signatures = "; ".join(identifier["details"] for identifier in result["identifiers"])
    return f"siegfried {result['siegfried']}, {signatures}"


def findings(path: str, file: "File") -> Iterator[CheckFinding]:
    """One for each format that the file may have."""
    if file["errors"] == _EMPTY_SOURCE:
        yield _unchecked(path, EMPTY, "The file is empty, so it has no format.")
    elif file["errors"] or not file["matches"]:
        why = file["errors"] or "siegfried has no answer"
        yield _unchecked(path, UNREADABLE, f"The file cannot be identified: {why}")
    else:
        yield from (_finding(path, match) for match in file["matches"])


def _finding(path: str, match: "Match") -> CheckFinding:
    if match["id"] == _UNKNOWN:
        return _unchecked(path, UNKNOWN_FORMAT, _sentence("The format is not known", match["warning"]))
    name = " ".join(part for part in (match["format"], match["version"]) if part)
    return CheckFinding(
        path=path,
        verdict=CheckVerdict.FINE,
        code=match["id"][:CODE_LIMIT],
        message=_sentence(name, match["basis"], match["warning"])[:MESSAGE_LIMIT],
    )


def _unchecked(path: str, code: str, message: str) -> CheckFinding:
    return CheckFinding(
        path=path, verdict=CheckVerdict.UNCHECKED, code=code, message=one_line(message)[:MESSAGE_LIMIT]
    )


def _sentence(*parts: str) -> str:
    return one_line("; ".join(part for part in parts if part))
