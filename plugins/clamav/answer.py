"""What clamd's answers say about a file. What clamd has not read, or not completely, is never fine."""

import re
from collections.abc import Sequence

from pipeline.checks import CODE_LIMIT, MESSAGE_LIMIT, CheckFinding, CheckVerdict, Obstacle, ServiceAway
from pipeline.names import one_line

SCANNER_ERROR = "scanner-error"
"""Code of a file that clamd gave up for a reason of its own."""

_FOUND = re.compile(r"stream: (?P<name>.+) FOUND")
_ERROR = re.compile(r"(?P<reason>.+) ERROR")

_TIME = "Heuristics.Limits.Exceeded.MaxScanTime"
_LIMITS = ("Heuristics.Limits.Exceeded.", "Heuristics.XZ.DicSizeLimit")
_ENCRYPTED = "Heuristics.Encrypted."

_ERRORS = {
    "INSTREAM size limit exceeded.": Obstacle.TOO_LARGE,
    "Time limit reached": Obstacle.TIMED_OUT,
    "Can't allocate memory": Obstacle.OUT_OF_MEMORY,
}
_SERVICE = re.compile(r"(Error writing|Can't write) to temporary file|Can't create temporary|No space left")
"""Faults of clamd that every file would meet."""


def findings(path: str, answers: Sequence[str]) -> tuple[CheckFinding, ...]:
    """One for each answer; ServiceAway if clamd reports a fault of its own host."""
    return tuple(_finding(path, answer) for answer in answers)


def unchecked(path: str, code: str, why: str) -> CheckFinding:
    return _made(path, CheckVerdict.UNCHECKED, code, f"The file was not checked for viruses: {why}")


def _finding(path: str, answer: str) -> CheckFinding:
    if answer == "stream: OK":
        return CheckFinding(path=path, verdict=CheckVerdict.FINE)
    if virus := _FOUND.fullmatch(answer):
        return _named(path, virus["name"])
    if error := _ERROR.fullmatch(answer):
        return _error(path, error["reason"])
    return unchecked(path, Obstacle.INVALID_ANSWER, f"the scanner answered {answer[:100]!r}")


def _named(path: str, name: str) -> CheckFinding:
    """The alerts of clamd.conf's AlertExceedsMax and AlertEncrypted say what was not read."""
    if name.startswith(_TIME):
        return unchecked(path, Obstacle.TIMED_OUT, f"the scanner ended at its time limit ({name})")
    if name.startswith(_LIMITS):
        return unchecked(path, Obstacle.TOO_LARGE, f"it exceeds a limit of the scanner ({name})")
    if name.startswith(_ENCRYPTED):
        return unchecked(path, Obstacle.ENCRYPTED, f"it is encrypted, or contains something that is ({name})")
    return _made(path, CheckVerdict.FOUND, name, f"The virus scanner found {name}.")


def _error(path: str, reason: str) -> CheckFinding:
    if _SERVICE.search(reason):
        raise ServiceAway(f"clamd cannot take files: {reason}; see its log and its disk")
    reason = reason.removeprefix("stream: ")
    return unchecked(path, _ERRORS.get(reason, SCANNER_ERROR), f"the scanner says: {reason}")


def _made(path: str, verdict: CheckVerdict, code: str, message: str) -> CheckFinding:
    code, message = one_line(code)[:CODE_LIMIT], one_line(message)[:MESSAGE_LIMIT]
    return CheckFinding(path=path, verdict=verdict, code=code, message=message)
