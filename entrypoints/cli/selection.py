"""The jobs that a command's options select, as listed by the API."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from entrypoints.cli.options import SharedOptions
from operations.board import values
from operations.jobs import job_view
from pipeline.errors import UsageRefused
from pipeline.states import JobState
from zkstate.queue import listings

if TYPE_CHECKING:
    from entrypoints.cli.api import Client
    from operations.jobs.job_view import JobList

PAGE = 500
"""Maximum rows per page."""

_FILTERS = ("batch", "profile", "state", "cause", "older_than")


def are_named(options: SharedOptions) -> bool:
    """True for ids, False for a filter; UsageRefused for neither or both."""
    if bool(options.named) != is_filtered(options):
        return bool(options.named)
    *others, last = (f"--{name.replace('_', '-')}" for name in _FILTERS if name in options.offered)
    filters = f"{', '.join(others)} or {last}"
    if options.named:
        raise UsageRefused(f"specify ids or select jobs by {filters}, not both")
    kinds = "jobs" if "jids" in options.offered else "jobs or batches"
    raise UsageRefused(f"specify ids of {kinds}, or select jobs by {filters}")


def is_filtered(options: SharedOptions) -> bool:
    return any(value is not None for value in _query(options).values())


def jobs(site: Client, options: SharedOptions, limit: int, after: str | None) -> JobList:
    """One page of the jobs that match the options."""
    rows: list[values.BoardJob] = []
    damaged: list[listings.Unreadable] = []
    for page in _pages(site, options, limit, after):
        rows += page.rows
        damaged += page.unreadable
        after = page.next
    unreadable = {one.id for one in damaged}
    return job_view.JobList(
        jobs=tuple(_row(row) for row in rows if row.jid not in unreadable),
        unreadable=tuple(damaged),
        total=page.total,
        next=after,
        freshness=page.freshness,
    )


def every_job(site: Client, options: SharedOptions) -> Iterator[values.BoardJob]:
    for page in _pages(site, options):
        yield from page.rows


def _pages(
    site: Client, options: SharedOptions, limit: float = math.inf, after: str | None = None
) -> Iterator[values.JobPage]:
    """The pages with the first `limit` rows after the cursor `after`."""
    while True:
        most = int(min(limit, PAGE))
        page = site.get("/v1/jobs", values.JobPage, **_query(options), limit=most, cursor=after)
        yield page
        limit, after = limit - len(page.rows), page.next
        if after is None or limit <= 0:
            return


def _query(options: SharedOptions) -> dict[str, object]:
    return {
        "state": options.state or (JobState.FAILED if options.cause else None),
        "batch": options.batch,
        "collection": options.profile,
        "cause": options.cause,
        "older_than": options.older_than,
    }


def _row(row: values.BoardJob) -> listings.JobRow:
    """The row without fields that only the record has, if they were not read: the job has left the record."""
    unknown = {name for name in ("local_id", "retry_count") if getattr(row, name) is None}
    shared = row.model_dump(include=set(listings.JobRow.model_fields) - unknown)
    return listings.JobRow.model_validate({**shared, "profile": row.collection})
