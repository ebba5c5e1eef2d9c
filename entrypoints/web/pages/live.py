"""The streams of open pages: the board, one job, one batch."""

from __future__ import annotations

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from entrypoints.web.context import context_of
from entrypoints.web.pages import board, one_batch, one_job
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.streaming import View, streaming
from entrypoints.web.pages.templating import render, rights
from entrypoints.web.pages.whole import whole_of
from operations.board.values import scope_of
from operations.visibility import sees_fleet, visible_batch, visible_job
from pipeline.principal import Principal

router = page_router()


@router.get("/live/board")
async def live_board(request: Request, caller: PageCaller) -> Response:
    web, scope, whole = context_of(request), scope_of(caller), sees_fleet(caller)
    acting, fleet = rights(caller)["may_act"], whole_of(request)

    def part() -> str:
        return board.live(web, scope, fleet.get() if whole else None, sees_whole=whole, acting=acting)

    key = ("board", scope.model_dump_json(), str(acting), str(whole))
    return streaming(request, caller, View(key, part, lambda _: True, of_fleet=whole))


@router.get("/live/jobs/{jid}")
async def live_job(request: Request, caller: PageCaller, jid: str) -> Response:
    web, whole = context_of(request), whole_of(request)
    await run_in_threadpool(visible_job, web.site, caller, jid)

    def part() -> str:
        return render(
            "job_live.html",
            **one_job.values(web, whole, caller, jid),
            **_of(caller, f"/jobs/{jid}"),
        )

    return streaming(
        request,
        caller,
        View(
            ("job", jid, str(caller.role), str(sees_fleet(caller))),
            part,
            lambda change: change.subject == jid,
        ),
    )


@router.get("/live/batches/{bid}")
async def live_batch(request: Request, caller: PageCaller, bid: str) -> Response:
    web, whole = context_of(request), whole_of(request)
    await run_in_threadpool(visible_batch, web.site, caller, bid)

    def part() -> str:
        return render(
            "batch_live.html",
            **one_batch.values(web, whole, caller, bid),
            **_of(caller, f"/batches/{bid}"),
        )

    view = View(
        ("batch", bid, str(caller.role), str(sees_fleet(caller))),
        part,
        lambda change: bid in (change.subject, change.bid),
    )
    return streaming(request, caller, view)


def _of(caller: Principal, path: str) -> dict[str, object]:
    return {**rights(caller), "here_url": path}
