"""The fixity schedule for people: its report, checks on demand, and proofs of custody.

A proof is a fixity check that a caller requests: a worker reads the bytes, and the inventory keeps the
result. The caller first checks that the principal may see the object. Any version of any size can be proved,
because nobody waits for the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pydantic import Field, TypeAdapter

from operations.objects import proofs
from operations.objects.objects import known_object, versions_to_prove
from operations.run import UNWATCHED, Run
from operations.site import Site
from pipeline.attempt import CheckedAttempt
from pipeline.inventory import fixity
from pipeline.inventory.base import InventoryObject, PreservationEvent
from pipeline.inventory.fixity import AskedProof, FixityCheck, ScheduleCounts
from pipeline.inventory.sql import SqlInventory
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.preservation.custody import Custody
from pipeline.preservation.fixity import LEAD, Pace, Unreadable, periods
from pipeline.principal import Principal, Role
from pipeline.profiles.profile import Profiles
from pipeline.records import Record, now
from pipeline.settings import Settings
from pipeline.steps.context import open_clients
from tasks.scheduled.fixity import LOCK, conclude, schedule_of
from tasks.stores import expected_of
from zkstate.connection.locks import exclusive
from zkstate.errors import Missing, Unreachable

REPORTED = 100
"""Maximum number of damaged objects in a report."""

LOCK_WAIT = 180.0
"""Seconds to wait for a scheduled check, which takes at most a minute."""


@dataclass(frozen=True)
class FixityReport:
    counts: ScheduleCounts
    periods: dict[str, int]
    """Collection -> days within which every file is read again."""
    damage: tuple[PreservationEvent, ...]
    """The last event of every damaged object; at most REPORTED."""


@dataclass(frozen=True)
class FixityRun:
    """The result of a check that a person asked for."""

    checked: tuple[FixityCheck, ...]
    unreadable: tuple[Unreadable, ...]
    complete: bool
    """False if it was interrupted; the next check continues."""
    problem: str = ""
    """Why the reading ended, or its sums were not noted: the record or the inventory went away."""

    @property
    def damaged(self) -> tuple[FixityCheck, ...]:
        return tuple(check for check in self.checked if check.damaged)


def fixity_report(inventory: SqlInventory, settings: Settings) -> FixityReport:
    inventory.schedule_newest()
    own_periods = periods(inventory, Profiles(settings.profiles), settings)
    return FixityReport(
        counts=fixity.counts(inventory, own_periods, now()),
        periods={name: period.days for name, period in own_periods.items()},
        damage=fixity.damage(inventory, REPORTED),
    )


def check_fixity(
    site: Site,
    principal: Principal,
    names: Sequence[str],
    *,
    every: bool,
    on_check: Callable[[FixityCheck | Unreadable], None],
    run: Run = UNWATCHED,
) -> FixityRun:
    """Check the named objects; without names, those that are due or, with `every`, all.

    One check runs in the fleet at a time, so that the rate in the settings holds; this waits for a scheduled
    check to end.
    """
    principal.require(Role.OPERATOR, "check fixity")
    stopped, on_read = run.should_stop, run.adding()
    clients = open_clients(site.settings, expected_of(site.session))
    arks = [known_object(clients.inventory, name).ark for name in dict.fromkeys(names)]
    schedule = schedule_of(clients, f"arkline {principal.name}")
    checked: list[FixityCheck] = []
    unreadable: list[Unreadable] = []
    complete, problem = False, ""
    pace = Pace(site.settings.fixity_rate, stopped=stopped)

    def check_if_asked() -> None:
        if stopped():
            raise AttemptOver("interrupted while waiting for a scheduled check")

    attempt = CheckedAttempt(check_if_asked)
    try:
        with exclusive(site.session, "single-flight", LOCK, attempt, LOCK_WAIT):
            outcomes = (
                (outcome for ark in arks if (outcome := schedule.check(ark, pace, on_read)))
                if arks
                else schedule.run(pace, now, on_read, 0 if every else LEAD)
            )
            for outcome in outcomes:
                on_check(outcome)
                checked.append(outcome) if isinstance(outcome, FixityCheck) else unreadable.append(outcome)
            complete = not stopped()
            conclude(site.session, schedule, clients, now(), (*checked, *unreadable))
    except AttemptOver:
        return FixityRun((), (), complete=False)
    except (StepFailed, Unreachable) as away:
        if not (checked or unreadable):
            raise
        problem = str(away)  # hours of reading are reported nevertheless
    return FixityRun(tuple(checked), tuple(unreadable), complete, problem)


class ProofState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class CustodyProof(Record):
    """The proof of a version of an object, which was asked for, is being read, or has ended."""

    id: str
    ark: str
    version: int
    state: ProofState = ProofState.WAITING
    asked: datetime
    began: datetime | None = None
    ended: datetime | None = None
    bytes_read: int = 0
    bytes_total: int = Field(description="Bytes that are to be read.")
    ahead: int = Field(0, description="Proofs that wait before this one.")
    message: str = Field("", description="Why the proof failed: storage could not be read.")
    custody: Custody | None = Field(None, description="The result: `agrees` if nothing differs.")


_CUSTODY = TypeAdapter(Custody)


def start_proof(site: Site, known: InventoryObject, version: int | None, asked_by: str) -> CustodyProof:
    """Request a proof of the version (None: the current one), or return the pending one.

    UsageRefused if there is no such version; `too-many-proofs`.
    """
    (number,) = versions_to_prove(known, version, every=False)
    return _shown(proofs.ask(site.settings, site.inventory(), known, number, asked_by))


def proof_of(inventory: SqlInventory, proof_id: str, known: InventoryObject) -> CustodyProof:
    """The proof; Missing if this object has no such proof, or no longer has it."""
    proof = fixity.find_proof(inventory, proof_id)
    if proof is None or proof.ark != known.ark:
        raise Missing(
            f"there is no proof {proof_id} of {known.ark}, of which the last of each version is kept: "
            "start a new one"
        )
    return _shown(proof)


def latest_proof(inventory: SqlInventory, known: InventoryObject, number: int) -> CustodyProof | None:
    """The latest requested proof of the version."""
    proof = fixity.latest_proof(inventory, known.ark, number)
    return None if proof is None else _shown(proof)


def _shown(proof: AskedProof) -> CustodyProof:
    custody = None if proof.custody is None else _CUSTODY.validate_json(proof.custody)
    return CustodyProof(**{**vars(proof), "state": _state(proof), "custody": custody})


def _state(proof: AskedProof) -> ProofState:
    if proof.ended is not None:
        return ProofState.FAILED if proof.message and proof.custody is None else ProofState.DONE
    return ProofState.WAITING if proof.began is None else ProofState.RUNNING
