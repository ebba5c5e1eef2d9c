"""The categories of problems that the checker reports."""

from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    LOST = "lost"
    DUPLICATED = "duplicated"
    ILLEGAL = "illegal"
    LEAK = "leaks"
    AUDIT = "audit_findings"


@dataclass(frozen=True)
class Problem:
    """A violation; `about` is the job or batch whose timeline shows it, or empty."""

    sort: Category
    about: str
    text: str


@dataclass(frozen=True)
class Repeated:
    """Messages sent more than once with the same identifier: allowed, as exactly-once is impossible."""

    mails: int = 0
    callbacks: int = 0
    unused_numbers: int = 0
    """Numbers of minted ARKs without an object: given up in favour of an ARK that a local id names."""


@dataclass(frozen=True)
class Judgement:
    problems: tuple[Problem, ...]
    repeated: Repeated
