"""One job: its state, why it is there, its timeline and files. Read from ZooKeeper or the archive."""

from collections.abc import Iterator

from fastapi import Request, Response

from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import Caller
from entrypoints.web.composed import Xml
from entrypoints.web.context import context_of, site_of
from entrypoints.web.limits import LONG, slow
from entrypoints.web.parameters import LIMIT, Cursor, Jid, Limit, decode_number, linked, respond
from operations.explanation import Explanation
from operations.jobs import job_view
from operations.jobs.job_view import JobFiles, JobView, Timeline
from operations.objects.objects import object_of_job
from operations.objects.retrieval import premis_of
from operations.why.why import why
from pipeline.attempt import Attempt, Progress

router = api_router("/v1/jobs/{jid}", "jobs")


@router.get("", summary="One job", response_model=JobView, responses={304: {"description": "Unchanged."}})
def show_job(request: Request, caller: Caller, jid: Jid) -> Response:
    """`verbs` says what may be done with it; the ETag goes into `If-Match` of a verb."""
    view = job_view.job_view(site_of(request), caller, jid)
    return respond(request, view, view.version)


@router.get("/why", summary="Why the job is where it is")
@slow("fleet_work")
def why_job(request: Request, caller: Caller, jid: Jid) -> Explanation:
    """Facts with stable codes: what it waits for, since when, whether it moves by itself, what helps."""
    return why(site_of(request), caller, jid)


@router.get("/timeline", summary="Every step of the job, and how long it took")
def timeline(request: Request, caller: Caller, jid: Jid) -> Timeline:
    return job_view.timeline(site_of(request), caller, jid)


@router.get("/progress", summary="The progress of the job's download")
def progress(request: Request, caller: Caller, jid: Jid) -> Progress | None:
    """null unless the job is downloading and its worker reported progress a moment ago."""
    return job_view.progress(site_of(request), caller, jid)


@router.get("/files", summary="The files of the version that the job stored")
def files(
    request: Request,
    response: Response,
    caller: Caller,
    jid: Jid,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> JobFiles:
    """With their digests and origins; none before the version is in the inventory."""
    page = job_view.job_files(site_of(request), caller, jid, limit, decode_number(cursor))
    return linked(request, response, page)


@router.get("/premis", summary="All files and events of the job's object as PREMIS 3", response_class=Xml)
@slow("slow_work", LONG)
def premis(request: Request, caller: Caller, jid: Jid, attempt: Attempt) -> Xml:
    """The document that `arkline object ARK --premis FILE` writes; its parts are read from storage."""
    site = site_of(request)
    known = object_of_job(site, caller, jid)
    return premis_answer(premis_of(site, context_of(request).events, caller, known), attempt, jid)


def premis_answer(document: Iterator[bytes], attempt: Attempt, name: str) -> Xml:
    return Xml(document, attempt, {"Content-Disposition": f'attachment; filename="{name}-premis.xml"'})
