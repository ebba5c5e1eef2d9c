"""The depositor's pages: what I deposited, what I have to correct, and a new deposit."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Request
from fastapi.responses import HTMLResponse, Response

from entrypoints.web.context import context_of
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.notices import Notice, redirect
from entrypoints.web.pages.templating import page
from operations import submission as submissions
from operations.board.values import BatchSearch, Scope
from pipeline import names
from pipeline.description import local_ids
from pipeline.errors import ArklineError, UsageRefused
from pipeline.principal import Principal, Role
from pipeline.records import Submission, SubmissionType
from pipeline.states import BATCH, JobState

router = page_router()

ROWS = 50
"""Deposits of one page."""

Text = Annotated[str, Form()]


@router.get("/deposits")
def deposits(request: Request, caller: PageCaller, after: str | None = None) -> HTMLResponse:
    """The batches that this person submitted, whatever the role."""
    board = context_of(request).board
    mine = Scope(collections=caller.collections, owner=caller.identity)
    return page(
        request,
        "deposits.html",
        caller=caller,
        page=board.batches(mine, BatchSearch(), ROWS, after),
        failures=[group for group in board.failures(mine) if group.owner == "depositor"],
        freshness=board.freshness(),
        ended={state for state in BATCH.facts if BATCH.facts[state].ended},
        completed=JobState.COMPLETED,
        failed=JobState.FAILED,
    )


@router.get("/deposits/new")
def new(request: Request, caller: PageCaller) -> HTMLResponse:
    caller.require(Role.DEPOSITOR, "deposit", next(iter(caller.collections or ()), None))
    return _form(request, caller)


@router.post("/deposits")
def submit(  # noqa: PLR0913 - the fields of a form
    request: Request,
    caller: PageCaller,
    collection: Text,
    url: Text,
    kind: Text = "",
    creator: Text = "",
    title: Text = "",
    date: Text = "",
    local_id: Text = "",
    digest: Text = "",
    key: Text = "",
) -> Response:
    web = context_of(request)
    try:
        given = SubmissionType(kind) if kind else None
        submission = Submission(
            profile_name=collection,
            submitter=caller.name,
            payload_url=url,
            payload_filename=names.name_in(url),
            type=submissions.submission_type(url, given),
            erc_who=creator,
            erc_what=title,
            erc_when=date,
            local_id=local_ids.parse(local_id),
            digest=_digest(digest),
            idempotency_key=key or None,
        )
        done = submissions.submit(web.session, web.settings, web.profiles, submission, caller)
    except (ArklineError, ValueError) as refused:
        return _form(request, caller, problem=_sentence(refused))
    again = "This form was sent before" if done.again else "The repository has your deposit"
    return redirect(request, f"/batches/{done.bid}", Notice(f"{again}: {done.bid}."))


def _form(request: Request, caller: Principal, problem: str = "") -> HTMLResponse:
    profiles = context_of(request).profiles
    allowed = [name for name in profiles.names() if caller.collections is None or name in caller.collections]
    return page(
        request,
        "deposit_new.html",
        caller=caller,
        collections=allowed,
        kinds=list(SubmissionType),
        problem=problem,
        status=422 if problem else 200,
    )


def _digest(text: str) -> dict[str, str] | None:
    algorithm, separator, value = text.strip().partition(":")
    if not text.strip():
        return None
    if not separator:
        raise UsageRefused(f"'{text}' is not a digest: write the algorithm before it, as sha256:9f86d0…")
    return {"algorithm": algorithm, "value": value}


def _sentence(error: Exception) -> str:
    """A validation error of pydantic names the field; other errors are sentences already."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    first = errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else "form"
    return f"{field}: {first['msg'].removeprefix('Value error, ')}"
