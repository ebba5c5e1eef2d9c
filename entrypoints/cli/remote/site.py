"""A site over its API: the answers are parsed into the records that the renderers show."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from entrypoints.cli.remote.client import Client, path_of, quoted
from operations.batch_view import BatchView
from operations.board.values import BatchPage, Freshness, Stops
from operations.facts import Explanation
from operations.holds import ActionHistory, BatchHistory
from operations.job_list import JobFilter, JobList
from operations.job_view import JobView, Timeline
from operations.overview import Overview
from operations.profile_view import ProfileLine, ProfileLines, ProfileView
from operations.top import CAUSES, BoardSummary, LiveView
from operations.working_storage import SpaceView
from pipeline.attempt import Progress
from pipeline.notify.report.compose import BatchReport
from pipeline.records import Record
from pipeline.states import JobState
from zkstate.views import JobRow

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Page(Record):
    """A page of the board's list of jobs."""

    rows: tuple[dict[str, object], ...]
    next: str | None = None
    total: int


class _Board(Record):
    freshness: Freshness
    jobs: dict[JobState, int]
    oldest: dict[JobState, datetime]
    stops: Stops


@dataclass(frozen=True)
class RemoteSite:
    """Satisfies `entrypoints.cli.sites.Reads`."""

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
            cause=conditions.cause,
            older_than=conditions.older_than,
            limit=limit,
            cursor=after,
        )
        return JobList(jobs=tuple(map(_row, page.rows)), total=page.total, next=page.next)

    def summary(self) -> BoardSummary:
        board = self.client.get("/v1/board", _Board)
        failures = self.client.request("GET", "/v1/failures").json()
        collections = self.client.request("GET", "/v1/collections").json()
        return BoardSummary.model_validate(
            {
                **dict(board),
                "failures": failures[:CAUSES],
                "causes": len(failures),
                "collections": collections,
            }
        )

    def board(self, batches: int) -> LiveView:
        page = self.client.get("/v1/batches", BatchPage, limit=batches)
        return LiveView(summary=self.summary(), batches=page)

    def timeline(self, jid: str) -> Timeline:
        return self.client.get(f"/v1/jobs/{jid}/timeline", Timeline)

    def why(self, name: str) -> Explanation:
        return self.client.get(f"{path_of(name)}/why", Explanation)

    def report(self, bid: str) -> BatchReport:
        return self.client.get(f"/v1/batches/{bid}/report", BatchReport)

    def actions(self, collection: str | None) -> ActionHistory:
        path = "/v1/actions" if collection is None else f"/v1/collections/{quoted(collection)}/actions"
        return self.client.get(path, ActionHistory)

    def batch_history(self, bid: str) -> BatchHistory:
        return self.client.get(f"/v1/batches/{bid}/history", BatchHistory)

    def space(self) -> SpaceView:
        return self.client.get("/v1/space", SpaceView)

    def profile(self, name: str) -> ProfileView:
        return self.client.get(f"/v1/collections/{quoted(name)}/profile", ProfileView)

    def profiles(self) -> tuple[ProfileLine, ...]:
        return self.client.get("/v1/profiles", ProfileLines).profiles

    def sent_texts(self, bid: str) -> tuple[str, ...]:
        """The API has the report as it is now, and not as it was mailed."""
        return ()


def _row(row: Mapping[str, object]) -> JobRow:
    return JobRow.model_validate({**row, "profile": row.get("collection")})
