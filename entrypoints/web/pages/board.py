"""The front page: whether the fleet works, where the jobs are, what is stopped, what failed and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from entrypoints.cli.render.overview import problem_text
from entrypoints.web.context import WebContext, context_of
from entrypoints.web.pages import acts, ribbon, space
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import page, render
from entrypoints.web.pages.whole import Whole, whole_of
from operations.board.values import BatchSearch, FailureGroup, Freshness, Scope, Stops, scope_of
from operations.facts import REASON_OF_WAIT, Reason
from operations.health import FleetHealth
from operations.hosts import HostView
from operations.visibility import sees_fleet
from pipeline.errors import Action, Remedy
from pipeline.principal import Role
from pipeline.states import JobState

router = page_router()

LATEST = 10
"""Batches that the front page lists."""

_LISTS: Mapping[Reason, str] = {
    **{reason: f"/jobs?waiting={kind}" for kind, reason in REASON_OF_WAIT.items()},
    Reason.QUEUE_PAUSED: f"/jobs?state={JobState.PENDING}",
    Reason.WAITING_FOR_TURN: f"/jobs?state={JobState.PENDING}",
    Reason.COLLECTION_ON_HOLD: f"/jobs?state={JobState.HELD}",
    Reason.WAITING_FOR_SPACE: f"/jobs?state={JobState.PROVISIONING}",
}

Shown = tuple[acts.Button | acts.Advice, ...]


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
    health: FleetHealth | None = None
    problems: tuple[str, ...] = ()
    remedies: Shown = ()
    late: datetime | None = None
    """When the workers were asked, if the answer may be outdated."""
    waiting: dict[Reason, int] = field(default_factory=dict)
    lists: Mapping[Reason, str] = field(default_factory=dict)
    """Reason of waiting -> the list of the jobs that wait for it."""
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
        board=board_values(web, scope, whole),
        latest=web.board.batches(scope, BatchSearch(), LATEST).rows,
    )


def live(web: WebContext, scope: Scope, whole: Whole | None, *, acting: bool) -> Markup:
    """The part of the front page that follows the fleet."""
    return render("board_live.html", board=board_values(web, scope, whole), may_act=acting)


def board_values(web: WebContext, scope: Scope, whole: Whole | None) -> BoardValues:
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
    if whole is None:
        return facts
    return replace(
        facts,
        health=whole.health,
        problems=tuple(problem_text(problem) for problem in whole.health.problems),
        remedies=acts.of_remedies(_without(whole.health.remedies, Action.UNPAUSE)),
        late=whole.late,
        waiting=whole.health.waiting,
        lists=_LISTS,
        hosts=whole.hosts,
        space=True,
        space_picture=space.picture(whole.space),
    )


def _against(stops: Stops) -> tuple[Remedy, ...]:
    paused = (Remedy(Action.UNPAUSE),) if stops.pause else ()
    return (
        *paused,
        *(Remedy(Action.RELEASE_COLLECTION, stop.collection or "") for stop in stops.collections),
    )


def _without(remedies: tuple[Remedy, ...], action: Action) -> tuple[Remedy, ...]:
    """The button stands beside the stop itself."""
    return tuple(remedy for remedy in remedies if remedy.action is not action)
