"""One line of an examination: a fact as measured, its verdict, and what to do about it."""

from __future__ import annotations

from datetime import datetime

from pipeline.errors import Documented, Remedy
from pipeline.records import Record


class Verdict(Documented):
    OK = "ok", "As it should be."
    WARNING = "warning", "Work continues, but less safely, or only until a limit is reached."
    FAULT = "fault", "Work stops or is lost, or others can change it."
    NOT_KNOWN = "not known", "It could not be measured; the line says why."


class Line(Record):
    area: str = ""
    """What was examined: `zookeeper`, `redis`, `storage root`."""
    name: str
    verdict: Verdict
    fact: str
    """As measured, or why it could not be."""
    remedies: tuple[Remedy, ...] = ()
    step: str = ""
    """What to do where no command does it, with the page of docs/operators that describes it."""


class Examination(Record):
    host: str
    at: datetime
    lines: tuple[Line, ...]

    def count(self, verdict: Verdict) -> int:
        return sum(line.verdict is verdict for line in self.lines)

    @property
    def is_fit(self) -> bool:
        """Whether no line is a fault: neither a warning nor a fact that is not known fails a script."""
        return not self.count(Verdict.FAULT)


Todo = Remedy | str


def line(
    name: str, fact: str, *todo: Todo, warn: bool = False, wrong: bool = False, known: bool = True
) -> Line:
    """Not known, else a fault if `wrong`, else a warning if `warn`, else ok, and then without what to do."""
    verdict = Verdict.FAULT if wrong else Verdict.WARNING if warn else Verdict.OK
    remedies = tuple(one for one in todo if isinstance(one, Remedy))
    step = "; ".join(one for one in todo if isinstance(one, str))
    if known and verdict is Verdict.OK:
        return Line(name=name, verdict=verdict, fact=fact)
    return Line(
        name=name, verdict=verdict if known else Verdict.NOT_KNOWN, fact=fact, remedies=remedies, step=step
    )


def unknown(name: str, why: str, *todo: Todo) -> Line:
    return line(name, why, *todo, known=False)


LARGE, WRONG = 2.0, 60.0
"""Seconds: no decision of the fleet depends on them (decision 41), but times in histories and requests do."""


def clock(name: str, ahead: float, uncertain: float) -> Line:
    """`ahead`: seconds by which the other clock is ahead of this host's; it is wrong by up to `uncertain`."""
    fact = f"{abs(ahead):.2f} s {'ahead of' if ahead > 0 else 'behind'} this host, ± {uncertain:.2f} s"
    surely = abs(ahead) - uncertain
    step = "set both clocks by NTP (production.md#clocks)"
    return line(name, fact, step, warn=surely > LARGE, wrong=surely > WRONG)


TESTED = {
    "Python": ("3.11", "3.12", "3.13", "3.14"),
    "ZooKeeper": ("3.8", "3.9"),
    "Redis or Valkey": ("7", "8", "9"),
    "PostgreSQL": ("14", "15", "16", "17", "18"),
}
"""Python as in ci.yml; of Redis and Valkey, the oldest is Debian 12's."""


def release(name: str, product: str, version: str, page: str, shown: str = "") -> Line:
    releases = TESTED[product]
    tested = any(f"{version}.".startswith(f"{one}.") for one in releases)
    step = f"use {product} {releases[0]} to {releases[-1]} {page}"
    return line(name, shown or version, step, warn=not tested)


def part(name: str, used: float, most: float, step: str, fact: str = "") -> Line:
    """A warning from four fifths of a limit on; `most` is 0 without a limit."""
    return line(name, fact or f"{used:,} of {most:,}", step, warn=used > 0.8 * most > 0)


def encryption(used: object, step: str, *, unless: str = "") -> Line:
    """`unless`: why clear text harms nobody."""
    fact = "used" if used else f"not used: {unless or 'messages and passwords are in clear text'}"
    return line("tls", fact, step, warn=not used and not unless)
