"""A verb for many jobs: a dry run, and then exactly what the dry run showed."""

from typing import Annotated

from fastapi import APIRouter, Body, Request
from pydantic import Field

from entrypoints.web.authentication import OperatorCaller
from entrypoints.web.context import WebContext, context_of
from entrypoints.web.parameters import REASON_LIMIT
from entrypoints.web.routes.verbs import WITH_REASON, Verb
from entrypoints.web.slow_work import LONG, slow
from operations.board.values import JobSearch, scope_of
from operations.verbs.bulk import (
    JOBS_OF_A_PLAN,
    TOKEN_LIMIT,
    BulkPlan,
    Receipt,
    carry_out,
    make_plan,
    read_plan,
)
from operations.visibility import visible_job
from pipeline.attempt import Attempt
from pipeline.errors import UsageRefused
from pipeline.principal import Principal
from pipeline.records import Record
from pipeline.states import Event, JobState

router = APIRouter(prefix="/v1/bulk", tags=["verbs"])

PAGE = 500

Identifier = Annotated[str, Field(pattern=r"^jid[0-9]{10,20}$")]


class Selection(Record):
    """Jobs by id, or by the conditions of the list of jobs."""

    ids: tuple[Identifier, ...] = Field((), max_length=JOBS_OF_A_PLAN, examples=[["jid0000000001"]])
    search: JobSearch | None = None


class PlanRequest(Record):
    select: Selection
    to: JobState | None = Field(
        None, description="The state to resume in; null: after the last success of each job."
    )


class PlanToken(Record):
    token: str = Field(max_length=TOKEN_LIMIT, description="From the dry run.")
    reason: str = Field("", max_length=REASON_LIMIT, examples=["the source is back"])


@router.post("/{verb}/dry-run", summary="What the verb would do to the selected jobs")
@slow("slow_work", LONG)
def plan(
    request: Request,
    caller: OperatorCaller,
    verb: Verb,
    body: Annotated[PlanRequest, Body()],
    attempt: Attempt,
) -> BulkPlan:
    """The token carries it out, within a quarter of an hour."""
    context = context_of(request)
    names = _selected(context, caller, body.select, attempt)
    run = context.run_of(attempt)
    return make_plan(context.site, caller, Event(verb.value), names, body.to, run)


@router.post("/{verb}", summary="Do exactly what the dry run showed")
@slow("slow_work", LONG)
def do(
    request: Request,
    caller: OperatorCaller,
    verb: Verb,
    body: Annotated[PlanToken, Body()],
    attempt: Attempt,
) -> Receipt:
    """Jobs that moved after the dry run are not touched; the receipt names them."""
    context, event = context_of(request), Event(verb.value)
    if event in WITH_REASON and not body.reason:
        raise UsageRefused(f"{event} cannot be undone: give a reason")
    planned = read_plan(caller, event, body.token)
    run = context.run_of(attempt)
    return carry_out(context.site, caller, planned, reason=body.reason, run=run)


def _selected(context: WebContext, caller: Principal, selection: Selection, attempt: Attempt) -> list[str]:
    if bool(selection.ids) == (selection.search is not None):
        raise UsageRefused("select jobs by `ids` or by `search`, not by both")
    if selection.search is None:
        ids = list(dict.fromkeys(selection.ids))
        for jid in ids:
            attempt.check()
            visible_job(context.site, caller, jid)
        return ids
    names: list[str] = []
    after = None
    while True:
        attempt.check()
        page = context.board.jobs(scope_of(caller), selection.search, PAGE, after)
        names += [row.jid for row in page.rows]
        after = page.next
        if after is None or len(names) > JOBS_OF_A_PLAN:
            return names
