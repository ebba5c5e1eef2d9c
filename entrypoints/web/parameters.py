"""Parameters that several routes share."""

from typing import Annotated

from fastapi import Body, Path, Query
from pydantic import Field

from operations.board.values import BatchSearch, JobSearch
from pipeline.outcome import WaitKind
from pipeline.records import Record
from pipeline.states import BatchState, FailureKind, JobState

Jid = Annotated[str, Path(pattern=r"^jid[0-9]{10,20}$", examples=["jid0000000001"])]
Bid = Annotated[str, Path(pattern=r"^bid[0-9]{10,20}$", examples=["bid0000000001"])]
Collection = Annotated[str, Path(min_length=1, max_length=255, examples=["demo"])]
Text = Annotated[str | None, Query(max_length=255)]

REASON_LIMIT = 500


class Reason(Record):
    """Why somebody acts; it is recorded with the act."""

    reason: str = Field("", max_length=REASON_LIMIT, examples=["the source is back"])


NO_REASON = Reason(reason="")
Given = Annotated[Reason, Body()]


class RequiredReason(Record):
    """Why somebody acts; it is recorded with the act."""

    reason: str = Field(min_length=1, max_length=REASON_LIMIT, examples=["deposited twice by mistake"])


def job_search(  # noqa: PLR0913 - the conditions of one filter
    state: JobState | None = None,
    batch: Annotated[str | None, Query(pattern=r"^bid[0-9]{10,20}$")] = None,
    collection: Text = None,
    kind: FailureKind | None = None,
    cause: Annotated[str | None, Query(max_length=64, description="The id of a group of failures.")] = None,
    older_than: Annotated[
        float | None, Query(ge=0, le=1e10, allow_inf_nan=False, description="Seconds in its state at least.")
    ] = None,
    waiting: Annotated[WaitKind | None, Query(description="What the jobs wait for.")] = None,
    slow: Annotated[bool, Query(description="Only jobs that are in their state longer than usual.")] = False,
    q: Annotated[str | None, Query(max_length=255, description="An id, an ARK, or text of the name.")] = None,
) -> JobSearch:
    """The filter of a list of jobs, as the page of jobs has it."""
    return JobSearch(
        state=state,
        bid=batch,
        collection=collection,
        kind=kind,
        cause=cause,
        older_than=older_than,
        waiting=waiting,
        slow=slow,
        q=q,
    )


def batch_search(
    status: BatchState | None = None,
    collection: Text = None,
    owner: Text = None,
    q: Annotated[str | None, Query(max_length=255, description="An id, or text of the name.")] = None,
) -> BatchSearch:
    """The filter of a list of batches, as the page of batches has it."""
    return BatchSearch(status=status, collection=collection, owner=owner, q=q)
