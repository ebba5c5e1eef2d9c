"""The front page: whether the fleet works, where the jobs are, what is stopped, what failed and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from entrypoints.render.fleet_status import (
    HOSTS,
    kept_waiting,
    of_hours,
    outage_remedy,
    outage_text,
    problem_text,
    space_text,
    standstill,
    waits,
)
from entrypoints.web.context import WebContext, context_of
from entrypoints.web.pages import acts, drawings
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.streaming import View, streaming
from entrypoints.web.pages.templating import page, render, rights
from entrypoints.web.pages.whole import Whole, whole_of
from operations.board.throughput import last_hours
from operations.board.values import (
    EVERYTHING,
    BatchSearch,
    FailureGroup,
    Freshness,
    Hour,
    Scope,
    Stops,
    scope_of,
)
from operations.fleet.health import FleetHealth, Health, HealthProblem
from operations.fleet.hosts import HostView
from operations.reasons import REASON_OF_WAIT, Reason
from operations.visibility import sees_fleet
from pipeline.errors import Action, Remedy
from pipeline.humanize import by_whom, counted
from pipeline.outcome import Service, WaitKind
from pipeline.principal import Role
from pipeline.states import JobState

router = page_router()

FIRST_READ = 2.0
"""Seconds that the front page waits for the record to be read for the first time."""

LATEST = 10
"""Number of batches on the front page."""

_LISTS: Mapping[Reason, str] = {
    **{reason: f"/jobs?waiting={kind}" for kind, reason in REASON_OF_WAIT.items()},
    Reason.HOST_BACKING_OFF: f"/jobs?waiting={WaitKind.HOST}",
    Reason.QUEUE_PAUSED: f"/jobs?state={JobState.PENDING}",
    Reason.WAITING_FOR_TURN: f"/jobs?state={JobState.PENDING}",
    Reason.COLLECTION_ON_HOLD: f"/jobs?state={JobState.HELD}",
    Reason.HOLD_ENDED: f"/jobs?state={JobState.HELD}",
    Reason.WAITING_FOR_SPACE: f"/jobs?state={JobState.PROVISIONING}",
    Reason.WAITING_FOR_REVIEW: f"/jobs?state={JobState.REVIEW}",
}


@dataclass(frozen=True)
class Waiting:
    """Jobs and batches that wait for the same reason."""

    number: int
    text: str
    link: str = ""


Shown = tuple[acts.Button | acts.Advice, ...]


@dataclass(frozen=True)
class Trouble:
    """One line of the banner."""

    text: str
    detail: str = ""
    remedy: str = ""
    link: str = ""
    link_text: str = "Stops"
    urgent: bool = False
    """Whether an operator may have to act although all systems work."""


@dataclass(frozen=True)
class Banner:
    """The top of the page. It claims nothing based on facts that may be outdated."""

    tone: str
    title: str
    troubles: tuple[Trouble, ...] = ()
    remedies: Shown = ()


@dataclass(frozen=True)
class JobValues:
    """What the board knows from the record."""

    counts: dict[JobState, int]
    oldest: dict[JobState, datetime]
    slow: dict[JobState, int]
    usual: dict[JobState, float]
    ribbon: drawings.Ribbon
    hours: tuple[Hour, ...]
    drawn_hours: tuple[tuple[str, tuple[drawings.Box, ...]], ...]
    in_hours: str
    """The sums of the hours in words."""
    stored_as_of: datetime | None
    stops: Stops
    stop_buttons: Shown
    failures: tuple[FailureGroup, ...]


@dataclass(frozen=True)
class BoardValues:
    """The values of `board_live.html`; health and space only for those who see the whole fleet."""

    freshness: Freshness
    jobs: JobValues | None
    """None until the record has been read once: nothing is claimed."""
    away: str = ""
    """ZooKeeper's address, if it is unreachable."""
    banner: Banner | None = None
    late: datetime | None = None
    """When the workers were queried, if their answers may be outdated."""
    waiting: tuple[Waiting, ...] = ()
    hosts: tuple[HostView, ...] = ()
    space_picture: Markup | None = None


@router.get("/")
def front(request: Request, caller: PageCaller) -> Response:
    if caller.role is Role.DEPOSITOR:
        return RedirectResponse("/deposits", status_code=303)
    web, scope = context_of(request), scope_of(caller)
    whole = None
    if web.session.connected:
        whole = whole_of(request).get() if sees_fleet(caller) else None
        web.board.wait_filled(FIRST_READ)
    return page(
        request,
        "board.html",
        board=board_values(web, scope, whole, sees_fleet(caller)),
        latest=web.with_time_left(web.board.batches(scope, BatchSearch(), LATEST)).rows
        if web.board.known
        else None,
    )


@router.get("/live/board")
async def live_board(request: Request, caller: PageCaller) -> Response:
    """The live part of the front page."""
    web, scope, sees_whole = context_of(request), scope_of(caller), sees_fleet(caller)
    acting, fleet = rights(caller)["may_act"], whole_of(request)

    def part() -> str:
        board = board_values(web, scope, fleet.get() if sees_whole else None, sees_whole)
        return render("board_live.html", board=board, may_act=acting)

    key = ("board", scope.model_dump_json(), str(acting), str(sees_whole))
    return streaming(request, caller, View(key, part, lambda _: True, of_fleet=sees_whole))


def board_values(web: WebContext, scope: Scope, whole: Whole | None, sees_whole: bool) -> BoardValues:
    board = web.board
    facts = BoardValues(board.freshness(), _job_values(web, scope) if board.known else None)
    if not web.session.connected:
        return replace(facts, away=web.settings.zk_hosts)
    if not sees_whole:
        return facts
    if whole is None or not whole.current:
        return replace(facts, banner=ASKING)
    banner = banner_of(
        whole,
        acts.of_remedies(_without_stops(whole.health.remedies)),
        (*_at_limits(web, whole), *_of_jobs(whole, facts.jobs)),
        facts.jobs.stops if facts.jobs else None,
    )
    return replace(
        facts,
        banner=READING if facts.freshness.stale and not whole.health.problems else banner,
        late=whole.late,
        waiting=tuple(_waiting(web, whole)),
        hosts=whole.health.hosts,
        space_picture=drawings.picture(whole.space),
    )


def _job_values(web: WebContext, scope: Scope) -> JobValues:
    board = web.board
    counts, stops = board.counts(scope), board.stops(scope)
    reading = web.throughput()
    hours = last_hours(reading, board, scope)
    return JobValues(
        counts=counts,
        oldest=board.oldest(scope),
        slow=board.slow(scope),
        usual=board.usual(),
        ribbon=drawings.of_counts(counts),
        hours=hours,
        drawn_hours=drawings.of_hours(hours),
        in_hours=of_hours(hours),
        stored_as_of=reading.stored_as_of if reading else None,
        stops=stops,
        stop_buttons=acts.of_remedies(_against(stops)),
        failures=board.failures(scope),
    )


ASKING = Banner("asking", "Asking ZooKeeper, Redis and the workers …")
READING = Banner("asking", "Reading the record again …")
"""Shown while the board is not current: a batch may have failed since, so no good news is given."""


def banner_of(
    whole: Whole, remedies: Shown, beside: Sequence[Trouble] = (), stops: Stops | None = None
) -> Banner:
    """The banner; the first problem is its title. No good news while the workers are unknown.

    `beside`: what holds jobs back although all systems work.
    """
    health = whole.health
    if not whole.current:
        return ASKING
    asking = not whole.fleet.knows_workers and whole.fleet.fault is None
    problems = sorted(health.problems, key=lambda problem: not problem.stops_all)
    if not problems and asking:
        return Banner("asking", "Asking the workers …", tuple(beside))
    if not problems:
        return _without_problems(health, beside)
    first, *others = (_trouble(whole, problem, stops) for problem in problems)
    title = _sentence(first.text)
    if others:
        title += f", and {counted(len(others), 'more problem')}"
    last = (Trouble("asking the workers …"),) if asking else ()
    return Banner(_TONES[health.status], title, (replace(first, text=""), *others, *last, *beside), remedies)


def _without_problems(health: FleetHealth, beside: Sequence[Trouble]) -> Banner:
    for trouble in beside:
        if trouble.urgent:
            others = tuple(other for other in beside if other is not trouble)
            return Banner("warn", _sentence(trouble.text), (replace(trouble, text=""), *others))
    return Banner("good", WAITS if beside else health.status.doc, tuple(beside))


WAITS = "All systems work; some jobs wait."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


_TONES = {Health.OK: "good", Health.DEGRADED: "warn", Health.STOPPED: "bad"}


def _trouble(whole: Whole, problem: HealthProblem, stops: Stops | None) -> Trouble:
    text, health = problem_text(problem), whole.health
    if problem.reason is Reason.WAITING_FOR_SPACE:
        return Trouble(text, space_text(whole.space), _FOR_SPACE, "/space", "Who has it")
    for outage in health.outages:
        if problem.reason is Reason.SERVICE_DOWN and outage.name == problem.waits_for:
            remedy = outage_remedy(outage)
            return Trouble(text, outage_text(outage), remedy[:1].upper() + remedy[1:], "/stops#services")
    if problem.waits_for == Service.RECORD and health.record_fault:
        return Trouble(text, health.record_fault.message)
    if problem.reason is Reason.BROKER_FOREIGN:
        return Trouble(problem.reason.doc.rstrip("."), problem.message)
    action = _STOPS.get(problem.reason)
    if action is None:
        return Trouble(text)
    placed = (*((stops.pause,) if stops.pause else ()), *stops.collections) if stops else ()
    by = [
        by_whom(stop.by, stop.reason, stop.at)
        for stop in placed
        if stop.collection == (problem.waits_for or None)
    ]
    return Trouble(text, "".join(by).strip(), action.doc.rstrip("."), "/stops")


_STOPS: Mapping[Reason, Action] = {
    Reason.QUEUE_PAUSED: Action.UNPAUSE,
    Reason.COLLECTION_ON_HOLD: Action.RELEASE_COLLECTION,
}


def _of_jobs(whole: Whole, jobs: JobValues | None) -> Iterator[Trouble]:
    """What holds jobs back without a system fault: sources, causes of failures, and reviews."""
    for host in whole.health.hosts[:HOSTS]:
        until = f" until {host.waits_until:%Y-%m-%d %H:%M:%S} UTC" if host.waits_until else ""
        text = f"{host.host} {standstill(host)}: no request is sent to it{until}"
        yield Trouble(
            text, "", kept_waiting(host).rstrip("."), _LISTS[Reason.WAITING_FOR_HOST], "Waiting jobs"
        )
    for group in jobs.failures[:CAUSES] if jobs else ():
        remedy = group.remedy.rstrip(".")
        yield Trouble(group.title, "", remedy, f"/failures/{group.id}", "What failed", urgent=True)
    if number := jobs.counts.get(JobState.REVIEW, 0) if jobs else 0:
        text = f"{counted(number, 'job')} {'waits' if number == 1 else 'wait'} for a review"
        link = _LISTS[Reason.WAITING_FOR_REVIEW]
        yield Trouble(
            text, "", "Look at the downloaded files, then approve or reject each job", link, "Jobs in review"
        )


_FOR_SPACE = "Jobs that end make room; if none ends, stop one that has much of it, or enlarge working storage"

CAUSES = 3
"""Maximum number of failure causes in the banner; a list below shows all."""


def _at_limits(web: WebContext, whole: Whole) -> Iterator[Trouble]:
    for row in _of_quotas(web, whole):
        yield Trouble(
            f"{waits(row.number)}: {row.text.rstrip('.')}",
            "",
            "They start as others end; limits.jobs_at_work in the profile is the limit",
            row.link,
            "Waiting jobs",
        )


def _of_quotas(web: WebContext, whole: Whole) -> Iterator[Waiting]:
    """The jobs of collections that are at their limit."""
    if Reason.WAITING_FOR_TURN not in whole.health.waiting or not web.board.known:
        return
    for row in web.board.collections(EVERYTHING):
        limit, pending = whole.full.get(row.collection), row.jobs.get(JobState.PENDING, 0)
        if limit is None or not pending:
            continue
        where = urlencode({"collection": row.collection, "state": JobState.PENDING})
        text = f"{row.collection}: the collection's limit of {counted(limit, 'job')} at a time is reached."
        yield Waiting(pending, text, f"/jobs?{where}")


NO_TURN = "Pending: no job moves now."


def _waiting(web: WebContext, whole: Whole) -> Iterator[Waiting]:
    """What waits, and for what; a collection at its limit is listed apart from jobs that wait for others."""
    numbers = dict(whole.health.waiting)
    for row in _of_quotas(web, whole):
        numbers[Reason.WAITING_FOR_TURN] -= row.number
        yield row
    for reason, number in numbers.items():
        if number > 0:
            starts = reason is not Reason.WAITING_FOR_TURN or whole.health.status is not Health.STOPPED
            yield Waiting(number, reason.doc if starts else NO_TURN, _LISTS.get(reason, ""))


def _against(stops: Stops) -> tuple[Remedy, ...]:
    paused = (Remedy(Action.UNPAUSE),) if stops.pause else ()
    return (
        *paused,
        *(Remedy(Action.RELEASE_COLLECTION, stop.collection or "") for stop in stops.collections),
    )


def _without_stops(remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """The remedies without those whose buttons are next to the stops themselves."""
    stops = (Action.UNPAUSE, Action.RELEASE_COLLECTION)
    return tuple(remedy for remedy in remedies if remedy.action not in stops)
