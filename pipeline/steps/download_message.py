"""What a download says: how many files, which names were guessed, and which files failed."""

from collections.abc import Callable, Mapping, Sequence

from pipeline.names import quote_name
from pipeline.web_pages import SIGN_IN
from pipeline.working_storage.workspace import DownloadedFile

FAILURES_REPORTED = 20
"""Failed files after which no others are tried: enough for the depositor to see a pattern."""

FOLDERS_NAMED = 3

MESSAGE_LIMIT = 1800
"""Characters of a message that are stored, less some for its beginning."""


def count(files: int) -> str:
    return f"{files:,} file{'s'[: files != 1]}"


def remark(downloaded: Sequence[DownloadedFile], empty: Sequence[str] = ()) -> str:
    """What the depositor should look at; '' for nothing."""
    return "; ".join(filter(None, (_guessed_names(downloaded), _web_pages(downloaded), _empty(empty))))


def _web_pages(downloaded: Sequence[DownloadedFile]) -> str:
    """Files that came as web pages although their names say otherwise: their number, and the first name."""
    pages = [file.path for file in downloaded if file.is_web_page]
    if not pages:
        return ""
    first = (
        f"{count(len(pages))}, the first {quote_name(pages[0])}," if len(pages) > 1 else quote_name(pages[0])
    )
    return f"{first} came as a web page (HTML): open it and compare; {SIGN_IN}"


def _empty(folders: Sequence[str]) -> str:
    if not folders:
        return ""
    named = ", ".join(map(quote_name, folders[:FOLDERS_NAMED]))
    more = len(folders) - FOLDERS_NAMED
    return f"folders without files are not stored: {named}" + (f" and {more:,} more" if more > 0 else "")


def _guessed_names(downloaded: Sequence[DownloadedFile]) -> str:
    """Names whose encoding the container does not say: their number, the encodings taken, the first name."""
    guessed = [file for file in downloaded if file.name_encoding]
    if not guessed:
        return ""
    encodings = " and ".join(sorted({file.name_encoding for file in guessed}))
    return (
        f"the names of {count(len(guessed))} in the container are not marked as UTF-8 and were read "
        f"as {encodings}, the first as {quote_name(guessed[0].path)}: compare the names with yours"
    )


def summary(failures: Mapping[int, str], files: int, place: Callable[[int], str]) -> str:
    """The failures by line, in the order of the manifest, as many as a message can hold.

    `place`: the beginning of the message for a line.
    """
    lines = [place(line) + message for line, message in sorted(failures.items())]
    if len(lines) == 1:
        return lines[0]
    at_least = "at least " if len(lines) >= FAILURES_REPORTED else ""
    text = f"{at_least}{len(lines)} of {files:,} files cannot be downloaded"
    for number, line in enumerate(lines):
        if len(text) + len(line) > MESSAGE_LIMIT:
            return f"{text}; and {len(lines) - number} more"
        text += f"{';' if number else ':'} {line}"
    return text
