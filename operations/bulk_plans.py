"""A verb for many jobs in two steps: a dry run, and then exactly what the dry run showed.

A plan has the version of every job. A job that moved after the dry run is not touched.
"""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from operations.allowed_verbs import Moved
from operations.bulk import Refusal
from operations.operator import Operator, VerbResult, feed
from operations.verbs import act
from pipeline.errors import ArklineError, ErrorKind, ServiceUnreachable, UsageRefused
from pipeline.principal import Principal
from pipeline.records import Record
from pipeline.states import Event
from zkstate.errors import Ambiguous

PLAN_SECONDS = 900.0
PLANS = 200
"""Plans that one process remembers."""

JOBS_OF_A_PLAN = 10_000


class NoSuchPlan(ArklineError):
    """The token is of no plan of this caller, or the plan is too old; nothing was changed."""

    error_kind = ErrorKind.REFUSED


class BulkPlan(Record):
    """What the verb would do; `token` carries it out, once."""

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


@dataclass(frozen=True)
class _Owned:
    owner: str
    plan: BulkPlan
    until: float


class BulkPlans:
    """The plans of one process. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._plans: OrderedDict[str, _Owned] = OrderedDict()

    def make(self, operator: Operator, event: Event, names: Sequence[str]) -> BulkPlan:
        """UsageRefused for more jobs than JOBS_OF_A_PLAN."""
        if len(names) > JOBS_OF_A_PLAN:
            raise UsageRefused(
                f"{len(names):,} jobs are selected, and {JOBS_OF_A_PLAN:,} are accepted: select fewer, such "
                "as those of one batch or one cause"
            )
        expected: list[VerbResult] = []
        refused: list[Refusal] = []
        for name in names:
            try:
                expected.append(act(operator, name, event, dry_run=True))
            except (ServiceUnreachable, Ambiguous):
                raise
            except ArklineError as error:
                refused.append(Refusal(id=name, message=str(error)))
        plan = BulkPlan(
            token=secrets.token_urlsafe(24),
            verb=event,
            jobs=len(expected),
            expected=tuple(expected),
            refused=tuple(refused),
        )
        with self._guard:
            owner = operator.principal.identity
            self._plans[plan.token] = _Owned(owner, plan, time.monotonic() + PLAN_SECONDS)
            while len(self._plans) > PLANS:
                self._plans.popitem(last=False)
        return plan

    def take(self, principal: Principal, event: Event, token: str) -> BulkPlan:
        """The plan, which is forgotten: it is carried out once."""
        with self._guard:
            owned = self._plans.get(token)
            is_theirs = owned is not None and owned.owner == principal.identity and owned.plan.verb is event
            usable = is_theirs and owned is not None and owned.until > time.monotonic()
            if owned is None or not usable:
                raise NoSuchPlan(
                    f"there is no dry run of {event} with this token, or it is older than "
                    f"{PLAN_SECONDS / 60:.0f} minutes, or it was carried out: make the dry run again"
                )
            del self._plans[token]
        return owned.plan


def carry_out(operator: Operator, plan: BulkPlan) -> Receipt:
    """Do exactly what the plan says; a refusal of one job does not stop the others."""
    done: list[VerbResult] = []
    refused: list[Refusal] = []
    moved: list[Refusal] = []
    stopped = ""
    for job in plan.expected:
        try:
            done.append(act(operator, job.id, plan.verb, version=job.version, feeding=False))
        except Moved as error:
            moved.append(Refusal(id=job.id, message=str(error)))
        except (ServiceUnreachable, Ambiguous) as error:
            stopped = str(error)
            break
        except ArklineError as error:
            refused.append(Refusal(id=job.id, message=str(error)))
    if done and not stopped:
        feed(operator)
    return Receipt(
        verb=plan.verb,
        done=tuple(done),
        refused=tuple(refused),
        moved=tuple(moved),
        untried=len(plan.expected) - len(done) - len(refused) - len(moved),
        stopped=stopped,
    )
