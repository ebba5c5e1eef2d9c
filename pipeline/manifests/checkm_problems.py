"""The problems of a manifest, collected while it is read."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

PROBLEM_LIMIT = 1000
"""Problems after which reading stops, so that a hostile manifest cannot fill the memory."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a line, counted from 1; line 0 is the manifest as a whole."""

    line: int
    message: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


class StopReading(Exception):
    """The rest of the manifest is not read."""


@dataclass
class Findings:
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def error(self, line: int, message: str) -> None:
        self.errors.append(Problem(line, message))
        if len(self.errors) >= PROBLEM_LIMIT:
            self.stop(0, f"reading stopped after {PROBLEM_LIMIT} problems")

    def stop(self, line: int, message: str) -> NoReturn:
        self.errors.append(Problem(line, message))
        raise StopReading

    def warn(self, line: int, message: str) -> None:
        if len(self.warnings) < PROBLEM_LIMIT:
            self.warnings.append(Problem(line, message, Severity.WARNING))

    def in_order(self) -> tuple[Problem, ...]:
        return tuple(sorted(self.errors + self.warnings, key=lambda problem: problem.line))
