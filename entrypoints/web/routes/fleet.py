"""The fleet: queue, workers, working storage, checks and repairs of the stores, and action history."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Body, Query, Request
from pydantic import Field

from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import Caller, CollectionOperator, FleetCaller, FleetOperator
from entrypoints.web.context import context_of, site_of
from entrypoints.web.limits import LONG, slow
from entrypoints.web.parameters import NO_REASON, REASON_LIMIT, Bid, Collection, Given, Jid, ReasonText
from operations.board.values import EVERYTHING, BatchSearch
from operations.checks.aliases import AuditView, audit_view
from operations.checks.check import CheckView, Scope, check
from operations.fleet import fleet, working_storage
from operations.fleet.fleet import Workers
from operations.fleet.health import LATEST, Overview, overview
from operations.fleet.hosts import HostView, known_hosts
from operations.fleet.plan import FleetPlan, plan
from operations.fleet.working_storage import CleanUp, SpaceView
from operations.known import require_collection
from operations.objects import fixity
from operations.objects.fixity import FixityReport
from operations.run import Run
from operations.verbs import holds
from operations.verbs.collection_profiles import ProfileLines, ProfileView, listed, shown
from operations.verbs.holds import ActionHistory
from operations.verbs.verbs import VerbResult, repair
from pipeline.profiles.profile import UnknownProfile
from pipeline.records import Record, SentRecord
from zkstate.errors import Missing

router = api_router("/v1", "fleet")


class RepairRequest(SentRecord):
    reason: ReasonText = Field("", max_length=REASON_LIMIT, examples=["the inventory was restored"])
    content: bool = Field(False, description="Read every byte of the versions.")


class Hosts(Record):
    hosts: tuple[HostView, ...]


@router.get("/queue", summary="The health of the fleet, the queue, and what stops it")
@slow("fleet_work")
def queue(request: Request, caller: FleetCaller) -> Overview:
    context, view = context_of(request), overview(site_of(request), caller)
    if not context.board.known:
        return view
    page = context.with_time_left(context.board.batches(EVERYTHING, BatchSearch(), LATEST))
    left = {row.bid: row.seconds_left for row in page.rows if row.seconds_left is not None}
    return view.model_copy(update={"seconds_left": left})


@router.get("/workers", summary="The workers that answer, with their queues, and those that were drained")
@slow("worker_work")
def workers(request: Request, caller: FleetCaller) -> Workers:
    return fleet.listed(site_of(request), caller)


@router.get("/fleet/plan", summary="How many workers the backlog and a deadline need, at the measured rate")
@slow("slow_work")
def fleet_plan(
    request: Request,
    caller: FleetCaller,
    within: Annotated[
        float, Query(gt=0, le=1e9, description="Seconds until all jobs should have ended.", examples=[21600])
    ],
    expected: Annotated[int, Query(ge=0, le=10**9, description="Further jobs that are expected.")] = 0,
) -> FleetPlan:
    """`unknown` says why a number is not known, such as when too few objects were measured."""
    context = context_of(request)
    return plan(context.site, caller, context.board, context.throughput(), within, expected)


@router.get("/space", summary="Working storage, and the jobs that reserve it")
@slow("record_work")
def space(request: Request, caller: FleetCaller) -> SpaceView:
    context = context_of(request)
    return working_storage.space_view(context.site, caller, context.board.usual())


@router.get("/hosts", summary="The sources of content: which are left alone until when, and open connections")
def hosts(request: Request, caller: Caller) -> Hosts:
    return Hosts(hosts=known_hosts(site_of(request), caller))


@router.get("/check", summary="Check that record, storage and inventory agree")
@slow("slow_work", LONG)
def run_check(
    request: Request,
    caller: FleetOperator,
    run: Run,
    scope: Annotated[Scope, Query(description="Everything, the jobs of the record, or the record alone.")] = (
        Scope.ALL
    ),
    content: Annotated[bool, Query(description="Read every byte of the versions.")] = False,
) -> CheckView:
    """Reads every node of the record and, with `all`, every version, and so takes its time."""
    return check(site_of(request), caller, scope, content=content, run=run)


@router.post("/check", summary="Check everything, and repair what can be repaired")
@slow("slow_work", LONG)
def run_repair(
    request: Request,
    caller: FleetOperator,
    run: Run,
    body: Annotated[RepairRequest, Body()] = RepairRequest(reason="", content=False),  # noqa: B008 - frozen
) -> CheckView:
    """Enters, reserves and raises; deletes nothing. A check that takes too long is continued by the next."""
    site = site_of(request)
    return check(site, caller, reason=body.reason, content=body.content, repair=True, run=run)


@router.get("/audit", summary="The older name of a check of the jobs")
@slow("slow_work", LONG)
def run_audit(request: Request, caller: FleetOperator, run: Run) -> AuditView:
    """Reads every node of the record, and so takes its time."""
    return audit_view(check(site_of(request), caller, Scope.JOBS, run=run))


@router.get("/actions", summary="Who paused the queue, drained workers, cleaned up")
def actions(request: Request, caller: FleetCaller) -> ActionHistory:
    return holds.history(site_of(request), caller)


@router.get("/collections/{name}/actions", summary="Who put the collection on hold, and released it")
@slow("record_work")
def collection_actions(request: Request, caller: CollectionOperator, name: Collection) -> ActionHistory:
    with _as_missing():
        require_collection(site_of(request), name)
    return holds.history(site_of(request), caller, name)


@router.get("/profiles", summary="The profiles of the collections that you may see")
def profiles(request: Request, caller: Caller) -> ProfileLines:
    return ProfileLines(profiles=listed(site_of(request).profiles, caller))


@router.get("/collections/{name}/profile", summary="The profile of the collection; no secret is shown")
def profile(request: Request, caller: CollectionOperator, name: Collection) -> ProfileView:
    with _as_missing():
        site_of(request).profiles.file(name)
    return shown(site_of(request).profiles, name)


@contextmanager
def _as_missing() -> Iterator[None]:
    """Answer 404 if the collection in the path is unknown."""
    try:
        yield
    except UnknownProfile as error:
        raise Missing(str(error)).with_remedies(*error.remedies) from error


maintenance_router = api_router("/v1", "maintenance")


class CleanUpRequest(SentRecord):
    reason: ReasonText = Field("", max_length=REASON_LIMIT, examples=["the disk is nearly full"])
    older_than: float | None = Field(
        None,
        ge=0,
        le=1e10,
        allow_inf_nan=False,
        description="Archive batches that completed longer ago, in seconds; null: the retention time.",
    )
    dry_run: bool = Field(True, description="Dry run: report what would be archived and removed.")


@maintenance_router.post(
    "/jobs/{jid}/repair", summary="Replace znodes of the job that cannot be read, and end it"
)
@slow("record_work")
def repair_job(request: Request, caller: FleetOperator, jid: Jid, body: Given = NO_REASON) -> VerbResult:
    """For operators of all collections, as the collection may be unreadable. 422 if nothing is damaged."""
    return repair(site_of(request), caller, jid, reason=body.reason)


@maintenance_router.post("/batches/{bid}/repair", summary="Replace znodes of the batch that cannot be read")
@slow("record_work")
def repair_batch(request: Request, caller: FleetOperator, bid: Bid, body: Given = NO_REASON) -> VerbResult:
    """For operators of all collections. Damaged jobs of the batch are repaired one by one, or by `cancel`."""
    return repair(site_of(request), caller, bid, reason=body.reason)


@maintenance_router.post(
    "/space/clean-up", summary="Archive old batches, and remove folders that no job needs"
)
@slow("slow_work", LONG)
def clean_up(
    request: Request,
    caller: FleetOperator,
    run: Run,
    body: Annotated[CleanUpRequest, Body()] = CleanUpRequest(reason="", older_than=None, dry_run=True),  # noqa: B008 - frozen
) -> CleanUp:
    """A dry run unless `dry_run` is false. 422 if working storage is not on the server of the API."""
    site, age = site_of(request), body.older_than
    return working_storage.clean_up(
        site, caller, reason=body.reason, older_than=age, dry_run=body.dry_run, run=run
    )


@maintenance_router.get("/fixity", summary="What was read again, what is overdue, and all damage in storage")
@slow("slow_work")
def fixity_report(request: Request, caller: FleetCaller) -> FixityReport:
    site = site_of(request)
    inventory = site.archive()
    if inventory is None:
        raise Missing("the inventory is empty: no object has been stored yet")
    return fixity.fixity_report(inventory, site.settings)
