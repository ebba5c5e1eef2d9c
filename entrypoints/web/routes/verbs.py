"""The verbs: what is done to a job or a batch, and what stops the queue, a collection or a worker.

The events of jobs and batches are those of `pipeline/states.py`, so that a new event has its route.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Query, Request
from pydantic import Field

from entrypoints.web.authentication import OperatorCaller
from entrypoints.web.context import context_of, site_of
from entrypoints.web.etags import expected_version
from entrypoints.web.parameters import NO_REASON, REASON_LIMIT, Bid, Collection, Given, Jid, RequiredReason
from entrypoints.web.slow_work import LONG, slow
from operations.fleet import fleet as fleet_workers
from operations.fleet.fleet import Drained
from operations.verbs import bulk, collection_profiles, holds
from operations.verbs.bulk import Outcome
from operations.verbs.collection_profiles import ProfileRenewal
from operations.verbs.holds import HoldResult
from operations.verbs.verbs import VerbResult, act
from pipeline.attempt import Attempt
from pipeline.principal import Principal
from pipeline.records import Record
from pipeline.states import BATCH, JOB, Event, JobState, Raiser

router = APIRouter(prefix="/v1", tags=["verbs"])

WITH_REASON = frozenset({Event.DELETE, Event.FAIL})
"""The events that cannot be undone need a reason."""

JOB_EVENTS = tuple(dict.fromkeys(row.event for row in JOB.table if Raiser.OPERATOR in row.by))
BATCH_EVENTS = tuple(
    dict.fromkeys(
        row.event for row in BATCH.table if Raiser.OPERATOR in row.by and row.event is not Event.FAIL
    )
)
"""Without the failure of a batch, which is a part of `cancel`."""

CANCEL = "cancel"
Verb = StrEnum("Verb", {event.name: event.value for event in JOB_EVENTS})  # type: ignore[misc]
BatchVerb = StrEnum(  # type: ignore[misc]
    "BatchVerb",
    {event.name: event.value for event in (*BATCH_EVENTS, Event.RESUME)} | {CANCEL.upper(): CANCEL},
)

Version = Annotated[int | None, Depends(expected_version)]
Required = Annotated[RequiredReason, Body()]
KeepHeld = Annotated[bool, Query(description="Only end the hold: held batches and jobs stay held.")]
WorkerName = Annotated[str, Path(min_length=1, max_length=255, examples=["worker1@host"])]


class Resume(Record):
    """Why the job is resumed, and where."""

    reason: str = Field("", max_length=REASON_LIMIT, examples=["the source is back"])
    to: JobState | None = Field(None, description="The state to resume in; null: after its last success.")


def _on_job(event: Event) -> Callable[..., VerbResult | Awaitable[VerbResult]]:
    def verb(
        request: Request, caller: OperatorCaller, jid: Jid, version: Version, body: Given = NO_REASON
    ) -> VerbResult:
        return act(site_of(request), caller, jid, event, reason=body.reason, version=version)

    @slow("record_work")  # a deletion removes the job's folder, which may have very many files
    def verb_with_reason(
        request: Request, caller: OperatorCaller, jid: Jid, version: Version, body: Required
    ) -> VerbResult:
        return act(site_of(request), caller, jid, event, reason=body.reason, version=version)

    return verb_with_reason if event in WITH_REASON else verb


def _on_batch(event: Event) -> Callable[..., Awaitable[VerbResult]]:
    @slow("slow_work", LONG)
    def verb(
        request: Request,
        caller: OperatorCaller,
        bid: Bid,
        version: Version,
        attempt: Attempt,
        body: Given = NO_REASON,
    ) -> VerbResult:
        web = context_of(request)
        run = web.run_of(attempt)
        return act(web.site, caller, bid, event, reason=body.reason, version=version, run=run)

    @slow("slow_work", LONG)
    def verb_with_reason(
        request: Request,
        caller: OperatorCaller,
        bid: Bid,
        version: Version,
        body: Required,
        attempt: Attempt,
    ) -> VerbResult:
        web = context_of(request)
        run = web.run_of(attempt)
        return act(web.site, caller, bid, event, reason=body.reason, version=version, run=run)

    return verb_with_reason if event in WITH_REASON else verb


@router.post("/jobs/{jid}/resume", summary="Resume the failed job")
def resume(
    request: Request,
    caller: OperatorCaller,
    jid: Jid,
    version: Version,
    body: Annotated[Resume, Body()] = Resume(reason="", to=None),  # noqa: B008 - frozen
) -> VerbResult:
    site, reason = site_of(request), body.reason
    return act(site, caller, jid, Event.RESUME, reason=reason, version=version, to=body.to)


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
    attempt: Attempt,
) -> Outcome:
    """Jobs that have not ended fail, held ones are deleted; the report follows."""
    web = context_of(request)
    run = web.run_of(attempt)
    return bulk.cancel(web.site, caller, bid, reason=body.reason, version=version, run=run)


@router.post("/batches/{bid}/resume", summary="Resume the failed jobs of the batch")
@slow("slow_work", LONG)
def resume_batch(
    request: Request,
    caller: OperatorCaller,
    bid: Bid,
    version: Version,
    attempt: Attempt,
    body: Annotated[Resume, Body()] = Resume(reason="", to=None),  # noqa: B008 - frozen
) -> Outcome:
    web = context_of(request)
    return bulk.resume_batch(
        web.site,
        caller,
        bid,
        reason=body.reason,
        version=version,
        to=body.to,
        run=web.run_of(attempt),
    )


@router.post("/jobs/{jid}/{verb}/dry-run", summary="What the verb would do to the job")
def dry_run_of_job(
    request: Request,
    caller: OperatorCaller,
    jid: Jid,
    verb: Verb,
    version: Version,
    body: Annotated[Resume, Body()] = Resume(reason="", to=None),  # noqa: B008 - frozen
) -> Outcome:
    """Nothing is changed; what would be refused is refused."""
    event = Event(verb.value)
    result = act(site_of(request), caller, jid, event, version=version, to=body.to, dry_run=True)
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
    attempt: Attempt,
    body: Annotated[Resume, Body()] = Resume(reason="", to=None),  # noqa: B008 - frozen
) -> Outcome:
    """Nothing is changed; what would be refused is refused."""
    web = context_of(request)
    site, run = web.site, web.run_of(attempt)
    if verb.value == CANCEL:
        return bulk.cancel(site, caller, bid, version=version, dry_run=True, run=run)
    event = Event(verb.value)
    if event is Event.RESUME:
        return bulk.resume_batch(site, caller, bid, version=version, to=body.to, dry_run=True, run=run)
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


@router.post("/collections/{name}/hold", summary="Hold what is submitted to the collection")
def hold_collection(
    request: Request, caller: OperatorCaller, name: Collection, body: Given = NO_REASON
) -> HoldResult:
    return holds.hold_collection(site_of(request), caller, name, reason=body.reason)


@router.post("/collections/{name}/hold/dry-run", summary="What a hold of the collection would change")
def dry_run_of_hold(request: Request, caller: OperatorCaller, name: Collection) -> HoldResult:
    return holds.hold_collection(site_of(request), caller, name, dry_run=True)


@router.post("/collections/{name}/release", summary="End the hold, and release what it held")
@slow("slow_work", LONG)
def release_collection(
    request: Request,
    caller: OperatorCaller,
    name: Collection,
    attempt: Attempt,
    keep_held: KeepHeld = False,
    body: Given = NO_REASON,
) -> HoldResult:
    return _release(request, caller, name, keep_held, attempt, body.reason)


@router.post("/collections/{name}/release/dry-run", summary="What the end of the hold would release")
@slow("slow_work", LONG)
def dry_run_of_release(
    request: Request,
    caller: OperatorCaller,
    name: Collection,
    attempt: Attempt,
    keep_held: KeepHeld = False,
) -> HoldResult:
    return _release(request, caller, name, keep_held, attempt, dry_run=True)


def _release(  # noqa: PLR0913 - the conditions of one verb
    request: Request,
    caller: Principal,
    name: str,
    keep_held: bool,
    attempt: Attempt,
    reason: str = "",
    *,
    dry_run: bool = False,
) -> HoldResult:
    context = context_of(request)
    caller.require(caller.role, f"release collection {name}", name)
    context.site.profiles.get(name)
    return holds.release_collection(
        context.site,
        caller,
        name,
        reason=reason,
        keep_held=keep_held,
        dry_run=dry_run,
        run=context.run_of(attempt),
    )


@router.post("/workers/{worker}/drain", summary="Have a worker take no further jobs, also after a restart")
@slow("slow_work")
def drain(request: Request, caller: OperatorCaller, worker: WorkerName, body: Given = NO_REASON) -> Drained:
    return fleet_workers.drain(site_of(request), caller, worker, reason=body.reason)


@router.post("/workers/{worker}/undrain", summary="Let a worker take jobs again")
@slow("slow_work")
def undrain(request: Request, caller: OperatorCaller, worker: WorkerName, body: Given = NO_REASON) -> Drained:
    return fleet_workers.drain(site_of(request), caller, worker, reason=body.reason, undo=True)
