"""The front page: whether the fleet works, where the jobs are, what is stopped, what failed and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from entrypoints.cli.render.humanize import counted
from entrypoints.cli.render.overview import outage_text, problem_text
from entrypoints.web.context import WebContext, context_of
from entrypoints.web.pages import acts, ribbon, space
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import page, render
from entrypoints.web.pages.whole import Whole, whole_of
from operations.board.values import EVERYTHING, BatchSearch, FailureGroup, Freshness, Scope, Stops, scope_of
from operations.facts import REASON_OF_WAIT, Reason
from operations.health import FleetHealth, Health, Problem
from operations.hosts import HostView
from operations.visibility import sees_fleet
from pipeline.errors import Action, Remedy
from pipeline.principal import Role
from pipeline.services import REMEDIES, Service
from pipeline.states import JobState
from pipeline.waits import WaitKind

router = page_router()

LATEST = 10
"""Batches that the front page lists."""

_LISTS: Mapping[Reason, str] = {
    **{reason: f"/jobs?waiting={kind}" for kind, reason in REASON_OF_WAIT.items()},
    Reason.HOST_BACKING_OFF: f"/jobs?waiting={WaitKind.HOST}",
    Reason.QUEUE_PAUSED: f"/jobs?state={JobState.PENDING}",
    Reason.WAITING_FOR_TURN: f"/jobs?state={JobState.PENDING}",
    Reason.COLLECTION_ON_HOLD: f"/jobs?state={JobState.HELD}",
    Reason.WAITING_FOR_SPACE: f"/jobs?state={JobState.PROVISIONING}",
}


@dataclass(frozen=True)
class Waiting:
    """Jobs and batches that wait for the same."""

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


@dataclass(frozen=True)
class Banner:
    """The first thing on the page. It claims nothing from facts that may be outdated."""

    tone: str
    title: str
    troubles: tuple[Trouble, ...] = ()
    remedies: Shown = ()


@dataclass(frozen=True)
class BoardValues:
    """What `board_live.html` shows; health and space only for those who see the whole fleet."""

    freshness: Freshness
    counts: dict[JobState, int]
    oldest: dict[JobState, datetime]
    slow: dict[JobState, int]
    usual: dict[JobState, float]
    ribbon: ribbon.Ribbon
    stops: Stops
    stop_buttons: Shown
    failures: tuple[FailureGroup, ...]
    away: str = ""
    """ZooKeeper's address, if it does not answer."""
    banner: Banner | None = None
    late: datetime | None = None
    """When the workers were asked, if the answer may be outdated."""
    waiting: tuple[Waiting, ...] = ()
    hosts: tuple[HostView, ...] = ()
    space: bool = False
    space_picture: Markup | None = None


@router.get("/")
def front(request: Request, caller: PageCaller) -> Response:
    if caller.role is Role.DEPOSITOR:
        return RedirectResponse("/deposits", status_code=303)
    web, scope = context_of(request), scope_of(caller)
    whole = whole_of(request).get() if sees_fleet(caller) else None
    return page(
        request,
        "board.html",
        caller=caller,
        board=board_values(web, scope, whole, sees_fleet(caller)),
        latest=web.board.batches(scope, BatchSearch(), LATEST).rows,
    )


def live(web: WebContext, scope: Scope, whole: Whole | None, *, sees_whole: bool, acting: bool) -> Markup:
    """The part of the front page that follows the fleet."""
    return render("board_live.html", board=board_values(web, scope, whole, sees_whole), may_act=acting)


def board_values(web: WebContext, scope: Scope, whole: Whole | None, sees_whole: bool) -> BoardValues:
    board = web.board
    counts, stops = board.counts(scope), board.stops(scope)
    facts = BoardValues(
        freshness=board.freshness(),
        counts=counts,
        oldest=board.oldest(scope),
        slow=board.slow(scope),
        usual=board.usual(),
        ribbon=ribbon.of_counts(counts),
        stops=stops,
        stop_buttons=acts.of_remedies(_against(stops)),
        failures=board.failures(scope),
    )
    if not web.session.connected:
        return replace(facts, away=web.settings.zk_hosts)
    if not sees_whole:
        return facts
    if whole is None or not whole.current:
        return replace(facts, banner=ASKING)
    return replace(
        facts,
        banner=banner_of(whole, acts.of_remedies(_without_stops(whole.health.remedies))),
        late=whole.late,
        waiting=tuple(_waiting(web, whole)),
        hosts=whole.health.hosts,
        space=True,
        space_picture=space.picture(whole.space),
    )


ASKING = Banner("asking", "Asking ZooKeeper, Redis and the workers …")


def banner_of(whole: Whole, remedies: Shown) -> Banner:
    """The first problem is the title. While nothing is known of the workers, no good news is given."""
    health = whole.health
    if not whole.current:
        return ASKING
    asking = not whole.fleet.knows_workers and whole.fleet.fault is None
    problems = sorted(health.problems, key=lambda problem: not problem.stops_all)
    if not problems:
        return Banner("asking", "Asking the workers …") if asking else Banner("good", health.status.doc)
    first, *others = (_trouble(health, problem) for problem in problems)
    title = f"{first.text[:1].upper()}{first.text[1:]}"
    if others:
        title += f", and {counted(len(others), 'more problem')}"
    last = (Trouble("asking the workers …"),) if asking else ()
    return Banner(_TONES[health.status], title, (replace(first, text=""), *others, *last), remedies)


_TONES = {Health.OK: "good", Health.DEGRADED: "warn", Health.STOPPED: "bad"}


def _trouble(health: FleetHealth, problem: Problem) -> Trouble:
    text = problem_text(problem)
    for outage in health.outages:
        if problem.reason is Reason.SERVICE_DOWN and outage.name == problem.waits_for:
            remedy = REMEDIES.get(outage.service, "")
            return Trouble(text, outage_text(outage), remedy[:1].upper() + remedy[1:], "/stops#services")
    if problem.waits_for == Service.RECORD and health.record_fault:
        return Trouble(text, health.record_fault.message)
    return Trouble(text, link="/stops" if problem.reason in _STOPS else "")


_STOPS = frozenset({Reason.QUEUE_PAUSED, Reason.COLLECTION_ON_HOLD})


def _waiting(web: WebContext, whole: Whole) -> Iterator[Waiting]:
    """What waits, and for what; a collection at its limit is named apart from jobs that wait for others."""
    numbers = dict(whole.health.waiting)
    for row in web.board.collections(EVERYTHING):
        limit, pending = whole.full.get(row.collection), row.jobs.get(JobState.PENDING, 0)
        if limit is None or Reason.WAITING_FOR_TURN not in numbers or not pending:
            continue
        numbers[Reason.WAITING_FOR_TURN] -= pending
        where = urlencode({"collection": row.collection, "state": JobState.PENDING})
        text = f"{row.collection}: the collection's limit of {counted(limit, 'job')} at a time is reached."
        yield Waiting(pending, text, f"/jobs?{where}")
    for reason, number in numbers.items():
        if number > 0:
            yield Waiting(number, reason.doc, _LISTS.get(reason, ""))


def _against(stops: Stops) -> tuple[Remedy, ...]:
    paused = (Remedy(Action.UNPAUSE),) if stops.pause else ()
    return (
        *paused,
        *(Remedy(Action.RELEASE_COLLECTION, stop.collection or "") for stop in stops.collections),
    )


def _without_stops(remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """The buttons stand beside the stops themselves."""
    stops = (Action.UNPAUSE, Action.RELEASE_COLLECTION)
    return tuple(remedy for remedy in remedies if remedy.action not in stops)
