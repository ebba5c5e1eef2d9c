"""What is wrong in a manifest, found as it is read."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

PROBLEMS_KEPT = 1000
"""Problems after which reading stops: enough to mend, and a hostile manifest cannot fill the memory."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """What was found at a line, counted from 1; line 0 is the manifest as a whole."""

    line: int
    message: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


class Enough(Exception):
    """Reading stops: nothing that follows would be of use."""


@dataclass
class Findings:
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def error(self, line: int, message: str) -> None:
        self.errors.append(Problem(line, message))
        if len(self.errors) >= PROBLEMS_KEPT:
            self.stop(0, f"reading stopped after {PROBLEMS_KEPT} problems")

    def stop(self, line: int, message: str) -> NoReturn:
        self.errors.append(Problem(line, message))
        raise Enough

    def warn(self, line: int, message: str) -> None:
        if len(self.warnings) < PROBLEMS_KEPT:
            self.warnings.append(Problem(line, message, Severity.WARNING))
