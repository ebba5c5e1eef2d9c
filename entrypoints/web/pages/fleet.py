"""The fleet pages: what people and services hold back, the workers, and working storage."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse

from entrypoints.render.collection_figures import forecast_text
from entrypoints.render.fleet_status import outage_remedy
from entrypoints.web.authentication import FleetCaller
from entrypoints.web.context import WebContext, context_of
from entrypoints.web.limits import slow
from entrypoints.web.pages import acts
from entrypoints.web.pages.board import banner_of
from entrypoints.web.pages.drawings import picture
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import page
from entrypoints.web.pages.whole import whole_of
from operations.board.values import Stop, scope_of
from operations.collection_report import StorageFigures, storage_figures
from operations.fleet.working_storage import space_view
from operations.verbs import holds
from operations.visibility import sees_fleet
from pipeline.errors import Action, ServiceUnreachable
from pipeline.outcome import StepFailed
from pipeline.principal import Principal
from zkstate.fleet.holds import Hold
from zkstate.record import journal
from zkstate.record.journal import JournalEntry

router = page_router()

LATEST = 20
"""Maximum number of people's actions on the page."""

_BY_WORKERS = frozenset({journal.JournalAction.OUTAGE, journal.JournalAction.OUTAGE_OVER})


@dataclass(frozen=True)
class CollectionRow:
    name: str
    jobs: int
    stop: Stop | None
    button: acts.Button


@dataclass(frozen=True)
class WorkerRow:
    name: str
    queues: tuple[str, ...]
    processes: int
    busy: int | None
    """None if the worker did not say what it works on."""
    drain: Hold | None
    button: acts.Button


@router.get("/stops")
@slow("record_work")
def stops(request: Request, caller: PageCaller) -> HTMLResponse:
    web, scope = context_of(request), scope_of(caller)
    board = web.board
    stopped = board.stops(scope)
    sees_whole = sees_fleet(caller)
    whole = whole_of(request).get() if sees_whole else None
    known = whole is not None and whole.current
    jobs = {row.collection: sum(row.jobs.values()) for row in board.collections(scope)}
    on_hold = {stop.collection: stop for stop in stopped.collections if stop.collection}
    rows = []
    for name in sorted({*jobs, *on_hold}):
        stop = on_hold.get(name)
        act = acts.ACTS[Action.RELEASE_COLLECTION if stop else Action.HOLD_COLLECTION]
        rows.append(CollectionRow(name, jobs.get(name, 0), stop, acts.Button(act, name)))
    queue_act = acts.ACTS[Action.UNPAUSE if stopped.pause else "pause"]
    return page(
        request,
        "stops.html",
        freshness=board.freshness(),
        stops=stopped,
        queue_button=acts.Button(queue_act, ""),
        collections=rows,
        sees_whole=sees_whole,
        connected=web.session.connected,
        known=known and web.session.connected,
        outages=[(outage, outage_remedy(outage)) for outage in (whole.health.outages if whole else ())],
        hosts=whole.health.hosts if whole else (),
        drained=[
            (acts.Button(acts.ACTS[Action.UNDO_DRAIN], name), drain)
            for name, drain in (whole.fleet.drained if whole else {}).items()
        ],
        late=whole.late if whole else None,
        actions=_acts(web, caller, [row.name for row in rows]) if sees_whole else (),
    )


def _acts(web: WebContext, caller: Principal, collections: Iterable[str]) -> list[JournalEntry]:
    """The latest actions of people on the queue, the fleet and each collection; workers enter outages."""
    if not web.session.connected:
        return []
    subjects = (None, *collections)
    entries = [
        entry.model_copy(update={"target": entry.target or name or ""})
        for name in subjects
        for entry in holds.history(web.site, caller, name).entries
        if entry.action not in _BY_WORKERS
    ]
    return sorted(entries, key=lambda entry: entry.at, reverse=True)[:LATEST]


@router.get("/fleet")
def fleet(request: Request, caller: FleetCaller) -> HTMLResponse:
    web = context_of(request)
    whole = whole_of(request).get()
    if whole is None and not web.session.connected:
        raise web.session.unreachable()
    if whole is None:
        raise ServiceUnreachable("ZooKeeper, Redis and the workers are being asked: repeat this soon")
    drained = whole.fleet.drained
    workers = [
        WorkerRow(
            worker.name,
            worker.queues,
            worker.processes,
            worker.busy if worker.says_busy else None,
            drained.get(worker.name),
            acts.Button(acts.ACTS[Action.UNDO_DRAIN if worker.name in drained else "drain"], worker.name),
        )
        for worker in whole.fleet.workers
    ]
    return page(
        request,
        "fleet.html",
        banner=banner_of(whole, acts.of_remedies(whole.health.remedies)),
        health=whole.health,
        late=whole.late,
        workers=workers,
    )


@router.get("/space")
@slow("record_work")
def space(request: Request, caller: FleetCaller) -> HTMLResponse:
    web = context_of(request)
    view, figures = space_view(web.site, caller, web.board.usual()), StorageFigures(days=())
    with suppress(StepFailed):  # the inventory is away, and working storage may be as well
        if inventory := web.site.archive():
            figures = storage_figures(inventory)
    return page(
        request, "space.html", space=view, picture=picture(view), figures=figures, forecast_text=forecast_text
    )
