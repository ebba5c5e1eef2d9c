"""What a history may meet: its kinds of faults, the verbs of its people and its settings.

Each history enables a random part of these, at random rates: what is rare among everything is then common in
some history. The plan follows from the seed and from what the history is steered towards, and from nothing
else; so the seed and `--towards` are the name of a history.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pipeline.states import BATCH, JOB, Event, FailureKind, JobState, Raiser
from tools.simulation.facts import name_of

VERBS = {
    name_of(machine, row): (machine, row)
    for machine in (JOB, BATCH)
    for row in machine.table
    if Raiser.OPERATOR in row.by
}
"""The rows that a person raises."""

ACTS = (
    *("pause", "hold a collection", "change a profile", "cancel", "remove files", "deliver a callback"),
    "overrule",
)
"""What people do besides: methods of `people.Operator`."""

JOBS = 20
"""Objects of a history."""

LENGTH = 60.0
"""Virtual seconds in which deposits and faults begin."""

LONG = 6
"""Tries that last longer than a history has faults."""

NEAR = 0.5
"""Probability of a fault that is a goal each time that a process passes its place."""

WORKING = 100_000
"""Bytes of a small working storage: a job needs up to 30,000, so that some have to wait."""


@dataclass(frozen=True)
class Plan:
    towards: tuple[str, ...]
    """Rows, and pairs as `FAULT at PLACE`."""
    faults: tuple[str, ...]
    fault_rate: float
    """Probability of a fault at each place that a process passes."""
    verbs: dict[str, float]
    """Rows and acts of the operator -> their weight."""
    sought: frozenset[str]
    """Rows that are goals, and those before them: the operator waits for what is in their state."""
    pace: float
    """Most virtual seconds between two acts."""
    ends: float
    """Probability that an act may end a job for good."""
    servers: int
    lost: float
    """Fraction of messages."""
    repeated: float
    broken: float
    """Fraction of the requests to sources."""
    changed: float
    """Fraction of the requests to a source after which it has other bytes."""
    refused: float
    """Fraction of the requests to other services that fail."""
    wrong: float
    """Fraction of the objects that cannot be stored as they are."""
    tries: int
    """Of a job, before it fails."""
    ezid: bool
    mail: bool
    callbacks: bool
    checks: bool
    small: bool
    """Working storage is small."""
    leaves: bool
    """Completed batches leave the record at once."""

    @property
    def fails(self) -> bool:
        """Whether a worker may fail a job for something that is not the depositor's fault."""
        return (
            bool(self.refused or self.small or self.tries < LONG or self.towards)
            or "remove files" in self.verbs
        )


def plan_of(seed: int, towards: Sequence[str], faults: Sequence[str], number: int) -> Plan:
    """The plan of a seed, of these kinds of faults, about `number` in all.

    A row that it is steered towards has a large weight, and the plan has what the row needs.
    """
    chance = random.Random(f"plan {seed}")
    some = partial(_some, chance)
    rows = [goal for goal in towards if " at " not in goal]
    sought = {name for row in rows for name in (row, *_before(row))}
    verbs = {name: chance.random() for name in some(tuple(VERBS), 0.5)}
    verbs |= {act: chance.random() * 3 for act in some(ACTS, 0.5)}
    verbs |= dict.fromkeys(sorted(sought.intersection((*VERBS, *ACTS))), 10.0)
    wants = " ".join(rows)
    return Plan(
        towards=tuple(towards),
        faults=some(faults, 0.6),
        fault_rate=number / (5000 if towards else 1500) * (0.3 + chance.random()),
        verbs=verbs,
        sought=frozenset(sought),
        pace=0.5 if rows else chance.choice((1.0, 3.0, 6.0)),
        ends=1.0 if "delete" in wants or "reject" in wants else chance.choice((0.0, 0.0, 0.1, 0.4)),
        servers=chance.choice((1, 3)),
        lost=chance.choice((0.0, 0.02, 0.1)),
        repeated=chance.choice((0.0, 0.05, 0.2)),
        broken=max(chance.choice((0.0, 0.02, 0.1, 0.3)), 0.3 if "if named" in wants else 0.0),
        changed=chance.choice((0.0, 0.0, 0.5)),
        refused=0.5 if "after" in wants or "notify fail" in wants else chance.choice((0.0, 0.0, 0.1, 0.3)),
        wrong=chance.choice((0.0, 0.0, 0.1, 0.3)),
        tries=2 if "after" in wants else chance.choice((2, LONG)),
        ezid=chance.random() < 0.5 or "ezid" in " ".join(towards),
        mail=chance.random() < 0.5 or "mail" in " ".join(towards),
        callbacks=chance.random() < 0.5
        or "callback" in " ".join(towards)
        or any(goal in wants for goal in ("room kept", "after recording", "notify fail")),
        checks=chance.random() < 0.3,
        small=chance.random() < 0.25 or "empty" in wants or "yielded" in wants,
        leaves=chance.random() < 0.3 or "completed delete" in wants,
    )


def _some(chance: random.Random, names: Sequence[str], most: float) -> tuple[str, ...]:
    """A part of these, never none."""
    fraction = chance.random() * most + (1 - most)
    return tuple(name for name in names if chance.random() < fraction) or (chance.choice(names),)


def _before(row: str) -> list[str]:
    """What leads to where this row begins: the failure before a resumption, the hold before a release."""
    machine, known = VERBS.get(row, (None, None))
    if known is None:
        return []
    if known.source == JobState.HELD:
        return ["hold a collection", *(["job pending hold held"] if machine is JOB else [])]
    if machine is not JOB or known.event is not Event.RESUME:
        return []
    if known.named and known.target == known.after:
        return []  # what an operator fails gives up its room, and resumes there without a name
    following = JOB.next(known.source, Event.RESUME, known.after, FailureKind.SYSTEM)  # type: ignore[arg-type]
    return [f"job {following} {Event.FAIL} failed"]
