"""The site that a command works on: the stack beside it, or one that it reaches over the API.

Every method imports what it calls: some operations load SQLAlchemy and Celery, which takes most of a second.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from entrypoints.cli import context as opened
from entrypoints.cli import operator_context as common
from entrypoints.cli import reach
from entrypoints.cli.reach import TOKEN, URL
from pipeline.errors import UsageRefused

if TYPE_CHECKING:
    from entrypoints.cli.remote.client import Client
    from operations.batch_view import BatchView
    from operations.facts import Explanation
    from operations.holds import ActionHistory, BatchHistory
    from operations.job_list import JobFilter, JobList
    from operations.job_view import JobView, Timeline
    from operations.overview import Overview
    from operations.site import Site
    from operations.working_storage import SpaceView
    from pipeline.attempt import Progress
    from pipeline.notify.report.compose import BatchReport


class Reads(Protocol):
    """What the commands read."""

    def overview(self) -> Overview: ...
    def batch(self, bid: str) -> BatchView: ...
    def job(self, jid: str) -> JobView: ...
    def progress(self, job: JobView) -> Progress | None: ...
    def jobs(self, conditions: JobFilter, limit: int, after: str | None) -> JobList: ...
    def timeline(self, jid: str) -> Timeline: ...
    def why(self, name: str) -> Explanation: ...
    def report(self, bid: str) -> BatchReport: ...
    def sent_texts(self, bid: str) -> tuple[str, ...]: ...
    def actions(self, collection: str | None) -> ActionHistory: ...
    def batch_history(self, bid: str) -> BatchHistory: ...
    def space(self) -> SpaceView: ...


@dataclass(frozen=True)
class StackBeside:
    """Reads the record itself."""

    here: Site

    def overview(self) -> Overview:
        from operations import overview as fleet_overview

        return fleet_overview.overview(self.here, common.principal())

    def batch(self, bid: str) -> BatchView:
        from operations import batch_view

        return batch_view.batch_view(self.here, common.principal(), bid)

    def job(self, jid: str) -> JobView:
        from operations import job_view

        return job_view.job_view(self.here, common.principal(), jid)

    def progress(self, job: JobView) -> Progress | None:
        from operations import live

        return live.progress_of(self.here.settings, job.jid, job.state)

    def jobs(self, conditions: JobFilter, limit: int, after: str | None) -> JobList:
        from operations import job_list

        return job_list.list_jobs(self.here.session, conditions, limit, after)

    def timeline(self, jid: str) -> Timeline:
        from operations import job_view

        return job_view.timeline(self.here, common.principal(), jid)

    def why(self, name: str) -> Explanation:
        from operations import why as explanation

        return explanation.why(self.here, common.principal(), name)

    def report(self, bid: str) -> BatchReport:
        from operations import reports

        return reports.report(self.here, common.principal(), bid)

    def sent_texts(self, bid: str) -> tuple[str, ...]:
        from operations import reports

        return reports.sent_texts(self.here, common.principal(), bid)

    def actions(self, collection: str | None) -> ActionHistory:
        from operations import holds

        return holds.history(self.here, common.principal(), collection)

    def batch_history(self, bid: str) -> BatchHistory:
        from operations import holds

        return holds.batch_history(self.here, common.principal(), bid)

    def space(self) -> SpaceView:
        from operations import working_storage

        return working_storage.space_view(self.here, common.principal())


def client(beside: str = "") -> Client | None:
    """The client of the site in ARKLINE_URL; None if the command works beside the stack.

    `beside`: what was asked for that the API does not offer; UsageRefused if the site is another one.
    """
    if beside:
        reach.refuse_over_api(beside)
        return None
    url, token = os.environ.get(URL, ""), os.environ.get(TOKEN, "")
    if not url and not token:
        return None
    if not url or not token:
        lacking, given = (URL, TOKEN) if token else (TOKEN, URL)
        raise UsageRefused(f"{given} is set without {lacking}: set both to use a site's API, or none")
    from entrypoints.cli.remote.client import Client
    from pipeline.http import urls

    if problem := urls.web_problem(url):
        raise UsageRefused(f"{URL}: {problem}")
    if urls.has_password(url):
        raise UsageRefused(f"{URL} has a user or a password: a site is asked with {TOKEN} alone")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageRefused(f"{TOKEN} has a space or a sign that no token has: copy the token again")
    return Client(url.rstrip("/"), token)


@contextmanager
def site() -> Iterator[Reads]:
    if (remote := client()) is not None:
        from entrypoints.cli.remote.site import RemoteSite

        yield RemoteSite(remote)
        return
    with opened.site() as here:
        yield StackBeside(here)
