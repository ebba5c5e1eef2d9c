"""A site over its API: the answers are parsed into the records that the renderers show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from entrypoints.cli.remote.client import Client
from operations.batch_view import BatchView
from operations.facts import Explanation
from operations.job_list import JobFilter, JobList
from operations.job_view import JobView, Timeline
from operations.overview import Overview
from pipeline.attempt import Progress
from pipeline.notify.report.compose import BatchReport
from pipeline.records import Record
from zkstate.views import JobRow

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Page(Record):
    """A page of the board's list of jobs."""

    rows: tuple[dict[str, object], ...]
    next: str | None = None
    total: int


@dataclass(frozen=True)
class RemoteSite:
    """Satisfies `entrypoints.cli.sites.Site`."""

    client: Client

    def overview(self) -> Overview:
        return self.client.get("/v1/queue", Overview)

    def batch(self, bid: str) -> BatchView:
        return self.client.get(f"/v1/batches/{bid}", BatchView)

    def job(self, jid: str) -> JobView:
        return self.client.get(f"/v1/jobs/{jid}", JobView)

    def progress(self, job: JobView) -> Progress | None:
        answer = self.client.request("GET", f"/v1/jobs/{job.jid}/progress").json()
        return None if answer is None else Progress(**answer)

    def jobs(self, conditions: JobFilter, limit: int, after: str | None) -> JobList:
        page = self.client.get(
            "/v1/jobs",
            _Page,
            state=conditions.state,
            batch=conditions.bid,
            collection=conditions.profile,
            older_than=conditions.older_than,
            limit=limit,
            cursor=after,
        )
        return JobList(jobs=tuple(map(_row, page.rows)), total=page.total, next=page.next)

    def timeline(self, jid: str) -> Timeline:
        return self.client.get(f"/v1/jobs/{jid}/timeline", Timeline)

    def why(self, name: str) -> Explanation:
        kind = "batches" if name.startswith("bid") else "jobs"
        return self.client.get(f"/v1/{kind}/{name}/why", Explanation)

    def report(self, bid: str) -> BatchReport:
        return self.client.get(f"/v1/batches/{bid}/report", BatchReport)

    def sent_texts(self, bid: str) -> tuple[str, ...]:
        """The API has the report as it is now, and not as it was mailed."""
        return ()


def _row(row: Mapping[str, object]) -> JobRow:
    return JobRow.model_validate({**row, "profile": row.get("collection")})
