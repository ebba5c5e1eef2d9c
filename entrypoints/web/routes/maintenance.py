"""Repair of what cannot be read, clean-up of working storage, and the report of the fixity schedule."""

from typing import Annotated

from fastapi import APIRouter, Body, Request
from pydantic import Field

from entrypoints.web.authentication import Caller, OperatorCaller
from entrypoints.web.context import context_of, site_of
from entrypoints.web.parameters import NO_REASON, REASON_LIMIT, Bid, Given, Jid
from entrypoints.web.slow_work import LONG, slow
from operations.fleet import working_storage
from operations.fleet.working_storage import CleanUp
from operations.objects import fixity
from operations.objects.fixity import FixityReport
from operations.verbs.verbs import VerbResult, repair
from operations.visibility import require_fleet
from pipeline.attempt import Attempt
from pipeline.records import Record

router = APIRouter(prefix="/v1", tags=["maintenance"])


class CleanUpRequest(Record):
    reason: str = Field("", max_length=REASON_LIMIT, examples=["the disk is nearly full"])
    older_than: float | None = Field(
        None,
        ge=0,
        le=1e10,
        allow_inf_nan=False,
        description="Archive batches that completed longer ago, in seconds; null: the retention time.",
    )
    dry_run: bool = Field(True, description="Dry run: report what would be archived and removed.")


@router.post("/jobs/{jid}/repair", summary="Replace znodes of the job that cannot be read, and end it")
@slow("record_work")
def repair_job(request: Request, caller: OperatorCaller, jid: Jid, body: Given = NO_REASON) -> VerbResult:
    """For operators of all collections, as the collection may be unreadable. 422 if nothing is damaged."""
    return repair(site_of(request), caller, jid, reason=body.reason)


@router.post("/batches/{bid}/repair", summary="Replace znodes of the batch that cannot be read")
@slow("record_work")
def repair_batch(request: Request, caller: OperatorCaller, bid: Bid, body: Given = NO_REASON) -> VerbResult:
    """For operators of all collections. Damaged jobs of the batch are repaired one by one, or by `cancel`."""
    return repair(site_of(request), caller, bid, reason=body.reason)


@router.post("/space/clean-up", summary="Archive old batches, and remove folders that no job needs")
@slow("slow_work", LONG)
def clean_up(
    request: Request,
    caller: OperatorCaller,
    attempt: Attempt,
    body: Annotated[CleanUpRequest, Body()] = CleanUpRequest(reason="", older_than=None, dry_run=True),  # noqa: B008 - frozen
) -> CleanUp:
    """A dry run unless `dry_run` is false. 422 if working storage is not on the server of the API."""
    web = context_of(request)
    return working_storage.clean_up(
        web.site,
        caller,
        reason=body.reason,
        older_than=body.older_than,
        dry_run=body.dry_run,
        run=web.run_of(attempt),
    )


@router.get("/fixity", summary="What was read again, what is overdue, and all damage in storage")
@slow("slow_work")
def fixity_report(request: Request, caller: Caller) -> FixityReport:
    require_fleet(caller, "see the fixity of all collections")
    site = site_of(request)
    return fixity.fixity_report(site.inventory(), site.settings)
