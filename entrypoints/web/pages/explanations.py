"""The answer to "why is it here?" on a page: a paragraph, what helps, and who has what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from entrypoints.render import why as words
from entrypoints.web.context import WebContext
from entrypoints.web.pages import acts
from entrypoints.web.pages.whole import WholeFleet
from operations.board.values import JobSearch, scope_of
from operations.fleet.fleet import Answers, Fleet
from operations.jobs.allowed_verbs import allowed_verbs
from operations.reasons import Explanation, Reason
from operations.why.why import why_loaded
from pipeline.humanize import counted
from pipeline.inventory.archive import ArchivedBatch, ArchivedJob
from pipeline.principal import Principal, Role
from pipeline.records import Batch, Job
from pipeline.states import JOB, Event, JobState
from pipeline.working_storage.capacity import in_units
from zkstate.errors import Corrupt, Missing
from zkstate.record import jobs

_DONE = frozenset({Reason.COMPLETED, Reason.ARCHIVED})
_FAILED = frozenset(
    {Reason.FAILED_CONTENT, Reason.FAILED_SYSTEM, Reason.FAILED_TRANSIENT, Reason.JOBS_FAILED}
)


def explain(
    web: WebContext,
    whole: WholeFleet,
    caller: Principal,
    record: Job | Batch | ArchivedJob | ArchivedBatch,
) -> Explanation:
    """Why the job or the batch is where it is, without others' jobs; no page asks workers or Redis."""
    now = whole.get()
    fleet = now.fleet if now else Fleet(web.site, Answers(None, None))
    return why_loaded(fleet, caller, record)


def explained(facts: Explanation, version: int | None) -> dict[str, Any]:
    """The values of `explanation.html`; `version`: of the status of the explained job or batch."""
    alone = facts.model_copy(update={"remedies": ()})
    return {
        "paragraph": words.paragraph(alone),
        "remedies": () if facts.moves_itself else acts.of_remedies(facts.remedies, version),
        "afterwards": acts.of_remedies(facts.afterwards),
        "tone": _tone(facts),
    }


def _tone(facts: Explanation) -> str:
    if facts.reason in _DONE:
        return "good"
    if facts.reason in _FAILED:
        return "bad"
    return "" if facts.moves_itself else "warn"


NAMED = 5
"""Jobs that a page names."""

_OF_A_SHARE = frozenset({Reason.COLLECTION_AT_QUOTA, Reason.SHARE_TAKEN})


@dataclass(frozen=True)
class Holder:
    """A job that has a part of what another one waits for; `stop` None if it cannot be stopped now."""

    jid: str
    has: str
    state: JobState
    since: datetime
    stop: acts.Button | None


def holders(web: WebContext, caller: Principal, facts: Explanation) -> tuple[Holder, ...]:
    """The first NAMED of them; those that ended meanwhile are left out."""
    if caller.role is Role.DEPOSITOR:
        return ()
    waiting = facts.first or facts
    if waiting.reason in _OF_A_SHARE:
        shares = dict.fromkeys(_at_work(web, caller, waiting.profile), "a place")
    else:
        amount = in_units if waiting.reason is Reason.WAITING_FOR_SPACE else _connections
        shares = {name: amount(number) for name, number in waiting.users.items() if name.startswith("jid")}
    return tuple(_described(web, dict(list(shares.items())[:NAMED])))


def _at_work(web: WebContext, caller: Principal, collection: str) -> Iterator[str]:
    for state in JOB.working():
        if state is not JobState.PENDING:
            search = JobSearch(state=state, collection=collection)
            yield from (row.jid for row in web.board.jobs(scope_of(caller), search, NAMED).rows)


def _connections(number: int) -> str:
    return counted(number, "connection")


def _described(web: WebContext, shares: dict[str, str]) -> Iterator[Holder]:
    for jid, has in shares.items():
        try:
            job = jobs.load(web.session, jid)
        except (Missing, Corrupt):
            continue
        stop = acts.Button(acts.ACTS[Event.FAIL], jid, job.version)
        can_stop = Event.FAIL in allowed_verbs(job)
        yield Holder(jid, has, job.status.status, job.status.since, stop if can_stop else None)
