"""A verb for many jobs in two steps: a dry run, and then exactly what the dry run showed.

The token of a plan has the version of every job. A job that moved after the dry run is not touched, so a
token that is used again changes nothing.
"""

import time
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from operations.allowed_verbs import Moved
from operations.bulk import Refusal
from operations.operator import Operator, VerbResult
from operations.verbs import act
from pipeline.errors import ArklineError, ErrorKind, ServiceUnreachable, UsageRefused
from pipeline.principal import Principal
from pipeline.records import Record
from pipeline.states import Event, JobState
from zkstate.errors import Ambiguous

PLAN_SECONDS = 900.0
JOBS_OF_A_PLAN = 10_000

TOKEN_LIMIT = 200_000
"""Characters of a token."""

PLAIN_LIMIT = 500_000
"""Bytes of what a token says."""


class NoSuchPlan(ArklineError):
    """The token is of no dry run of this caller, or too old; nothing was changed."""

    error_kind = ErrorKind.REFUSED


class BulkPlan(Record):
    """What the verb would do; `token` carries it out."""

    token: str
    verb: Event
    jobs: int
    expected: tuple[VerbResult, ...]
    refused: tuple[Refusal, ...] = ()


class Receipt(Record):
    """What the verb did."""

    verb: Event
    done: tuple[VerbResult, ...] = ()
    refused: tuple[Refusal, ...] = ()
    moved: tuple[Refusal, ...] = ()
    """Jobs that changed after the dry run and were not touched."""
    untried: int = 0
    stopped: str = ""
    """The service that did not answer, so that `untried` jobs were not reached."""


class _Sealed(Record):
    """The content of a token. Every web process can read it, so any of them can carry out the plan."""

    verb: Event
    owner: str
    until: float
    """Seconds since the epoch."""
    to: JobState | None = None
    jobs: tuple[tuple[int, int], ...]
    """The number of a job, and the version of its status."""


@dataclass(frozen=True)
class Planned:
    """What a token asks for. It gives no right: the verb checks role, collection and version of every job."""

    verb: Event
    jobs: tuple[tuple[str, int], ...]
    """The id of a job, and the version that the dry run saw."""
    to: JobState | None = None
    """The state in which the jobs are to be resumed."""


def make_plan(operator: Operator, event: Event, names: Sequence[str], to: JobState | None = None) -> BulkPlan:
    """UsageRefused for more jobs than JOBS_OF_A_PLAN; Stopped."""
    if len(names) > JOBS_OF_A_PLAN:
        raise UsageRefused(
            f"{len(names):,} jobs are selected, and {JOBS_OF_A_PLAN:,} are accepted: select fewer, such "
            "as those of one batch or one cause"
        )
    expected: list[VerbResult] = []
    refused: list[Refusal] = []
    for name in names:
        operator.run.check(f"the dry run of {event} was stopped: nothing was changed")
        try:
            expected.append(act(operator, name, event, to=to, dry_run=True))
        except (ServiceUnreachable, Ambiguous):
            raise
        except ArklineError as error:
            refused.append(Refusal(id=name, message=str(error)))
    sealed = _Sealed(
        verb=event,
        owner=operator.principal.identity,
        until=time.time() + PLAN_SECONDS,
        to=to,
        jobs=tuple((int(one.id.removeprefix("jid")), one.version or 0) for one in expected),
    )
    return BulkPlan(
        token=urlsafe_b64encode(zlib.compress(sealed.model_dump_json().encode(), 9)).decode(),
        verb=event,
        jobs=len(expected),
        expected=tuple(expected),
        refused=tuple(refused),
    )


def read_plan(principal: Principal, event: Event, token: str) -> Planned:
    """What the dry run of this principal showed; NoSuchPlan for any other token."""
    sealed = _opened(token)
    if (sealed.verb, sealed.owner) != (event, principal.identity):
        raise NoSuchPlan(f"this is no token of your dry run of {event}: make the dry run again")
    if sealed.until < time.time():
        raise NoSuchPlan(f"the dry run is older than {PLAN_SECONDS / 60:.0f} minutes: make it again")
    jobs = tuple((f"jid{number:010d}", version) for number, version in sealed.jobs)
    return Planned(event, jobs, sealed.to)


def _opened(token: str) -> _Sealed:
    """NoSuchPlan for a token that is damaged, or larger than that of any plan."""
    try:
        inflated = zlib.decompressobj()
        text = inflated.decompress(urlsafe_b64decode(token.encode()), PLAIN_LIMIT)
        if not inflated.eof:
            raise NoSuchPlan("the token is not complete: make the dry run again")
        sealed = _Sealed.model_validate_json(text)
    except (ValueError, zlib.error) as error:
        raise NoSuchPlan("this is no token of a dry run: make the dry run again") from error
    if len(sealed.jobs) > JOBS_OF_A_PLAN or any(number < 0 for number, _ in sealed.jobs):
        raise NoSuchPlan("this is no token of a dry run: make the dry run again")
    return sealed


def carry_out(operator: Operator, plan: Planned) -> Receipt:
    """Do exactly what the plan says; a refusal of one job does not stop the others."""
    done: list[VerbResult] = []
    refused: list[Refusal] = []
    moved: list[Refusal] = []
    stopped = ""
    for jid, version in plan.jobs:
        if operator.run.should_stop():
            break
        try:
            done.append(act(operator, jid, plan.verb, version=version, to=plan.to, feeding=False))
        except Moved as error:
            moved.append(Refusal(id=jid, message=str(error)))
        except (ServiceUnreachable, Ambiguous) as error:
            stopped = str(error)
            break
        except ArklineError as error:
            refused.append(Refusal(id=jid, message=str(error)))
        operator.run.on_progress(len(done) + len(moved) + len(refused), len(plan.jobs))
    if done and not stopped:
        operator.site.feed()
    return Receipt(
        verb=plan.verb,
        done=tuple(done),
        refused=tuple(refused),
        moved=tuple(moved),
        untried=len(plan.jobs) - len(done) - len(refused) - len(moved),
        stopped=stopped,
    )
