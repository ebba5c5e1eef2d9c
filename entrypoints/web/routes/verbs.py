"""The verbs: on jobs and batches, the queue, a collection, a worker or a callback.

The events of jobs and batches come from `pipeline/states.py`, so a new event gets its route automatically. A
verb for many jobs is a dry run, and then exactly what the dry run showed.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from inspect import Parameter, signature
from typing import Annotated

from fastapi import Body, Depends, Path, Query, Request, Response
from pydantic import Field

from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import Caller, CollectionOperator, FleetOperator, OperatorCaller
from entrypoints.web.context import WebContext, context_of, site_of
from entrypoints.web.limits import LONG, slow
from entrypoints.web.parameters import (
    LIMIT,
    NO_REASON,
    REASON_LIMIT,
    Bid,
    Collection,
    Cursor,
    Given,
    Jid,
    Limit,
    ReasonText,
    RequiredReason,
    decode_cursor,
    expected_version,
    linked,
)
from operations.board.values import JobSearch, scope_of
from operations.fleet import fleet
from operations.fleet.fleet import Drained
from operations.known import require_names
from operations.run import Run
from operations.verbs import bulk, callbacks, collection_profiles, holds
from operations.verbs.bulk import (
    JOBS_OF_A_PLAN,
    TOKEN_LIMIT,
    BulkPlan,
    Outcome,
    Receipt,
    carry_out,
    make_plan,
    read_plan,
)
from operations.verbs.callbacks import CallbackAnswer, OwedPage
from operations.verbs.collection_profiles import ProfileRenewal
from operations.verbs.holds import HoldResult
from operations.verbs.verbs import Resumption, VerbResult, act
from operations.visibility import visible_batch, visible_job
from pipeline.attempt import Attempt
from pipeline.errors import UsageRefused
from pipeline.principal import Principal
from pipeline.records import SentRecord
from pipeline.states import BATCH, JOB, Event, JobState, Raiser
from zkstate.errors import Missing

router = api_router("/v1", "verbs")

WITH_REASON = frozenset({Event.DELETE, Event.FAIL, Event.REJECT})
"""Events that end a job or a batch, and so need a reason, which the depositor's report has."""

JOB_EVENTS = tuple(dict.fromkeys(row.event for row in JOB.table if Raiser.OPERATOR in row.by))
BATCH_EVENTS = tuple(
    dict.fromkeys(
        row.event for row in BATCH.table if Raiser.OPERATOR in row.by and row.event is not Event.FAIL
    )
)
"""Without the failure of a batch, which is part of `cancel`."""

CANCEL = "cancel"

FINDINGS = 100
FINDING_LIMIT = 200
"""Findings that a request may overrule, and the characters of one: a check's name and its code."""

Verb = StrEnum(  # type: ignore[misc]
    "Verb", {event.name: event.value for event in (*JOB_EVENTS, *BATCH_EVENTS)}
)
BatchVerb = StrEnum(  # type: ignore[misc]
    "BatchVerb",
    {event.name: event.value for event in (*BATCH_EVENTS, Event.RESUME)} | {CANCEL.upper(): CANCEL},
)

Version = Annotated[int | None, Depends(expected_version)]
Required = Annotated[RequiredReason, Body()]
KeepHeld = Annotated[bool, Query(description="Only end the hold: held batches and jobs stay held.")]
WorkerName = Annotated[str, Path(min_length=1, max_length=255, examples=["worker1@host"])]


Finding = Annotated[str, Field(min_length=1, max_length=FINDING_LIMIT)]
Findings = Annotated[
    tuple[Finding, ...],
    Field(
        max_length=FINDINGS,
        examples=[["clamav:Eicar-Test-Signature"]],
        description="The findings to overrule, so that they no longer stop the jobs: each as its digest in "
        "the job's message or as CHECK:CODE; with a reason. Of a batch, only the jobs that they stopped are "
        "resumed.",
    ),
]


class Resume(SentRecord):
    """Why the job is resumed, and where."""

    reason: ReasonText = Field("", max_length=REASON_LIMIT, examples=["the source is back"])
    to: JobState | None = Field(None, description="The state to resume in; null: after its last success.")
    overrule: str = Field(
        "", max_length=FINDING_LIMIT, description="One of the findings; those of `findings` count besides."
    )
    findings: Findings = ()

    @property
    def how(self) -> Resumption:
        one = (self.overrule,) if self.overrule else ()
        return Resumption(to=self.to, findings=(*one, *self.findings))


NO_RESUME = Resume(reason="", to=None, overrule="", findings=())

Act = Callable[..., VerbResult]


def _on_job(event: Event) -> Callable[..., VerbResult | Awaitable[VerbResult]]:
    def verb(
        request: Request, caller: OperatorCaller, jid: Jid, version: Version, body: Given = NO_REASON
    ) -> VerbResult:
        return act(site_of(request), caller, jid, event, reason=body.reason, version=version)

    # a deletion removes the job's folder, which may have very many files
    return slow("record_work")(_requiring_a_reason(verb)) if event in WITH_REASON else verb


def _on_batch(event: Event) -> Callable[..., Awaitable[VerbResult]]:
    def verb(
        request: Request,
        caller: OperatorCaller,
        bid: Bid,
        version: Version,
        run: Run,
        body: Given = NO_REASON,
    ) -> VerbResult:
        return act(site_of(request), caller, bid, event, reason=body.reason, version=version, run=run)

    return slow("slow_work", LONG)(_requiring_a_reason(verb) if event in WITH_REASON else verb)


def _requiring_a_reason(verb: Act) -> Act:
    """The verb with a required body that has a reason."""
    given = signature(verb)
    body = given.parameters["body"].replace(annotation=Required, default=Parameter.empty)
    others = (one for one in given.parameters.values() if one.name != "body")
    verb.__signature__ = given.replace(parameters=(*others, body))  # type: ignore[attr-defined]
    return verb


@router.post("/jobs/{jid}/resume", summary="Resume the failed job")
def resume(
    request: Request,
    caller: OperatorCaller,
    jid: Jid,
    version: Version,
    body: Annotated[Resume, Body()] = NO_RESUME,
) -> VerbResult:
    site, reason = site_of(request), body.reason
    return act(site, caller, jid, Event.RESUME, reason=reason, version=version, how=body.how)


for _event in JOB_EVENTS:
    if _event is not Event.RESUME:
        router.add_api_route(
            f"/jobs/{{jid}}/{_event}",
            _on_job(_event),
            methods=["POST"],
            name=f"{_event}_job",
            summary=f"{_event.capitalize()} the job",
            response_model=VerbResult,
        )
for _event in BATCH_EVENTS:
    router.add_api_route(
        f"/batches/{{bid}}/{_event}",
        _on_batch(_event),
        methods=["POST"],
        name=f"{_event}_batch",
        summary=f"{_event.capitalize()} the batch".replace("Update-report", "Send an updated report of"),
        response_model=VerbResult,
    )


@router.post("/batches/{bid}/cancel", summary="Stop the batch: its split, its jobs, its report")
@slow("slow_work", LONG)
def cancel(
    request: Request,
    caller: OperatorCaller,
    bid: Bid,
    version: Version,
    body: Required,
    run: Run,
) -> Outcome:
    """Jobs that have not ended fail, or complete if they are recorded; held ones are deleted. The report
    follows."""
    return bulk.cancel(site_of(request), caller, bid, reason=body.reason, version=version, run=run)


@router.post("/batches/{bid}/resume", summary="Resume the failed jobs of the batch")
@slow("slow_work", LONG)
def resume_batch(
    request: Request,
    caller: OperatorCaller,
    bid: Bid,
    version: Version,
    run: Run,
    body: Annotated[Resume, Body()] = NO_RESUME,
) -> Outcome:
    site, reason = site_of(request), body.reason
    return bulk.resume_batch(site, caller, bid, reason=reason, version=version, how=body.how, run=run)


@router.post("/jobs/{jid}/{verb}/dry-run", summary="What the verb would do to the job")
def dry_run_of_job(
    request: Request,
    caller: OperatorCaller,
    jid: Jid,
    verb: Verb,
    version: Version,
    body: Annotated[Resume, Body()] = NO_RESUME,
) -> Outcome:
    """Nothing is changed; what would be refused is refused."""
    event = Event(verb.value)
    result = act(
        site_of(request),
        caller,
        jid,
        event,
        reason=body.reason,
        version=version,
        how=body.how,
        dry_run=True,
    )
    return Outcome(verb=event, dry_run=True, done=(result,))


@router.post("/batches/{bid}/renew-profile/dry-run", summary="What a renewal of the profile would change")
def dry_run_of_renewal(
    request: Request, caller: OperatorCaller, bid: Bid, version: Version
) -> ProfileRenewal:
    return collection_profiles.renew(site_of(request), caller, bid, version=version, dry_run=True)


@router.post("/batches/{bid}/{verb}/dry-run", summary="What the verb would do to the batch")
@slow("slow_work", LONG)
def dry_run_of_batch(  # noqa: PLR0913 - the conditions of one verb
    request: Request,
    caller: OperatorCaller,
    bid: Bid,
    verb: BatchVerb,
    version: Version,
    run: Run,
    body: Annotated[Resume, Body()] = NO_RESUME,
) -> Outcome:
    """Nothing is changed; what would be refused is refused."""
    site = site_of(request)
    if verb.value == CANCEL:
        return bulk.cancel(site, caller, bid, version=version, dry_run=True, run=run)
    event = Event(verb.value)
    if event is Event.RESUME:
        return bulk.resume_batch(site, caller, bid, version=version, how=body.how, dry_run=True, run=run)
    result = act(site, caller, bid, event, version=version, dry_run=True)
    return Outcome(verb=event, dry_run=True, done=(result,))


@router.post("/batches/{bid}/renew-profile", summary="Use the changed profile for the rest of the batch")
def renew_profile(
    request: Request, caller: OperatorCaller, bid: Bid, version: Version, body: Given = NO_REASON
) -> ProfileRenewal:
    return collection_profiles.renew(site_of(request), caller, bid, reason=body.reason, version=version)


@router.post("/queue/pause", summary="Start no further job")
def pause(request: Request, caller: OperatorCaller, body: Given = NO_REASON) -> HoldResult:
    """Running jobs continue, and submissions are accepted."""
    return holds.pause(site_of(request), caller, reason=body.reason)


@router.post("/queue/unpause", summary="Start new jobs again")
def unpause(request: Request, caller: OperatorCaller, body: Given = NO_REASON) -> HoldResult:
    return holds.unpause(site_of(request), caller, reason=body.reason)


# of a name without a profile, all batches are read: their profile may be gone
@router.post("/collections/{name}/hold", summary="Hold what is submitted to the collection")
@slow("record_work")
def hold_collection(
    request: Request, caller: CollectionOperator, name: Collection, body: Given = NO_REASON
) -> HoldResult:
    return holds.hold_collection(site_of(request), caller, name, reason=body.reason)


@router.post("/collections/{name}/hold/dry-run", summary="What a hold of the collection would change")
@slow("record_work")
def dry_run_of_hold(request: Request, caller: CollectionOperator, name: Collection) -> HoldResult:
    return holds.hold_collection(site_of(request), caller, name, dry_run=True)


@router.post("/collections/{name}/release", summary="End the hold, and release what it held")
@slow("slow_work", LONG)
def release_collection(
    request: Request,
    caller: CollectionOperator,
    name: Collection,
    run: Run,
    keep_held: KeepHeld = False,
    body: Given = NO_REASON,
) -> HoldResult:
    site, reason = site_of(request), body.reason
    return holds.release_collection(site, caller, name, reason=reason, keep_held=keep_held, run=run)


@router.post("/collections/{name}/release/dry-run", summary="What the end of the hold would release")
@slow("slow_work", LONG)
def dry_run_of_release(
    request: Request,
    caller: CollectionOperator,
    name: Collection,
    run: Run,
    keep_held: KeepHeld = False,
) -> HoldResult:
    site = site_of(request)
    return holds.release_collection(site, caller, name, keep_held=keep_held, dry_run=True, run=run)


@router.post("/workers/{worker}/drain", summary="Have a worker take no further jobs, also after a restart")
@slow("worker_work", LONG)
def drain(
    request: Request,
    caller: FleetOperator,
    worker: WorkerName,
    body: Given = NO_REASON,
    until_stop: Annotated[
        bool, Query(description="The drain ends when the worker stops: for one that does not come back.")
    ] = False,
) -> Drained:
    return fleet.drain(site_of(request), caller, worker, reason=body.reason, until_stop=until_stop)


@router.post("/workers/{worker}/undrain", summary="Let a worker take jobs again")
@slow("worker_work", LONG)
def undrain(request: Request, caller: FleetOperator, worker: WorkerName, body: Given = NO_REASON) -> Drained:
    return fleet.drain(site_of(request), caller, worker, reason=body.reason, undo=True)


PAGE = 500

Identifier = Annotated[str, Field(pattern=r"^(jid|bid)[0-9]{10,20}$")]


class Selection(SentRecord):
    """Jobs and batches by id, or jobs by the conditions of their list."""

    ids: tuple[Identifier, ...] = Field((), max_length=JOBS_OF_A_PLAN, examples=[["jid0000000001"]])
    search: JobSearch | None = None


class PlanRequest(SentRecord):
    select: Selection
    to: JobState | None = Field(
        None, description="The state to resume in; null: after the last success of each job."
    )
    findings: Findings = ()


class PlanToken(SentRecord):
    token: str = Field(max_length=TOKEN_LIMIT, description="From the dry run.")
    reason: ReasonText = Field("", max_length=REASON_LIMIT, examples=["the source is back"])


@router.post("/bulk/{verb}/dry-run", summary="What the verb would do to the selected jobs or batches")
@slow("slow_work", LONG)
def plan(
    request: Request,
    caller: OperatorCaller,
    verb: Verb,
    body: Annotated[PlanRequest, Body()],
    attempt: Attempt,
    run: Run,
) -> BulkPlan:
    """The token carries it out, within a quarter of an hour. A batch is resumed with its failed jobs;
    `fail` stops it, as its `cancel` does."""
    context = context_of(request)
    names = _selected(context, caller, body.select, attempt)
    how = Resumption(to=body.to, findings=body.findings)
    return make_plan(context.site, caller, Event(verb.value), names, how, run)


@router.post("/bulk/{verb}", summary="Do exactly what the dry run showed")
@slow("slow_work", LONG)
def do(
    request: Request, caller: OperatorCaller, verb: Verb, body: Annotated[PlanToken, Body()], run: Run
) -> Receipt:
    """What moved after the dry run is not touched; the receipt names it."""
    event = Event(verb.value)
    if event in WITH_REASON and not body.reason:
        raise UsageRefused(f"{event} needs a reason: the depositor's report has it")
    planned = read_plan(caller, event, body.token)
    return carry_out(site_of(request), caller, planned, reason=body.reason, run=run)


def _selected(context: WebContext, caller: Principal, selection: Selection, attempt: Attempt) -> list[str]:
    if bool(selection.ids) == (selection.search is not None):
        raise UsageRefused("select jobs by `ids` or by `search`, not by both")
    if selection.search is None:
        ids = list(dict.fromkeys(selection.ids))
        for name in ids:
            attempt.check()
            visible = visible_batch if name.startswith("bid") else visible_job
            visible(context.site, caller, name)
        return ids
    names: list[str] = []
    after = None
    while True:
        attempt.check()
        page = context.board.jobs(scope_of(caller), selection.search, PAGE, after)
        require_names(context.site, caller, context.board, selection.search, page)
        names += [row.jid for row in page.rows]
        after = page.next
        if after is None or len(names) > JOBS_OF_A_PLAN:
            return names


callbacks_router = api_router("/v1", "callbacks")


@callbacks_router.get("/callbacks", summary="The callbacks of failed jobs that were not delivered yet")
def list_callbacks(
    request: Request, response: Response, caller: Caller, limit: Limit = LIMIT, cursor: Cursor = None
) -> OwedPage:
    """A page may have fewer rows than `limit`: `next` says whether there are more."""
    page = callbacks.owed_page(site_of(request), caller, limit, decode_cursor(cursor))
    return linked(request, response, page)


@callbacks_router.post("/callbacks/{jid}/deliver", summary="Deliver the callback of the job now")
@slow("slow_work", LONG)
def deliver(request: Request, caller: OperatorCaller, jid: Jid, body: Given = NO_REASON) -> CallbackAnswer:
    """One request to the receiver, whose answer is in `message`.

    Also of a job whose callback was delivered or given up; not of a job that left ZooKeeper.
    """
    return callbacks.deliver(site_of(request), caller, jid, reason=body.reason)


@callbacks_router.post(
    "/collections/{name}/test-callback", summary="Send a test callback to the collection's receiver"
)
@slow("slow_work", LONG)
def send_test(request: Request, caller: CollectionOperator, name: Collection) -> CallbackAnswer:
    """Signed as every callback is; its `jobStatus` is `TEST`. The receiver's answer is in `message`."""
    site = site_of(request)
    if name not in site.profiles.names():
        raise Missing(f"there is no collection {name}")
    return callbacks.send_test(site, caller, name)
