"""Working storage: what is used, what is reserved, by which jobs, and what would still fit."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from entrypoints.web.context import context_of
from entrypoints.web.pages.login import OperationsCaller, page_router
from entrypoints.web.pages.templating import page, render
from entrypoints.web.slow_work import slow
from operations.fleet.overview import Space
from operations.fleet.working_storage import space_view

router = page_router()

WIDTH = 1000
"""Units of the drawing's width."""


@dataclass(frozen=True)
class SpaceDrawing:
    """Bytes, and widths in units of the drawing; `total` None on a machine without working storage."""

    total: int | None
    used: int
    reserved: int
    limit: int
    left: int
    threshold: int
    used_width: float
    reserved_width: float
    limit_x: float


def drawing(space: Space) -> SpaceDrawing:
    total, used = space.total or 0, space.used or 0
    limit = total * space.threshold // 100
    scale = WIDTH / total if total else 0.0
    # reserved bytes that are on the disk already are drawn as used
    reserved_width = min(space.reserved * scale, WIDTH - min(used * scale, WIDTH))
    return SpaceDrawing(
        total=space.total,
        used=used,
        reserved=space.reserved,
        limit=limit,
        left=max(0, limit - used - space.reserved),
        threshold=space.threshold,
        used_width=round(min(used * scale, WIDTH), 1),
        reserved_width=round(reserved_width, 1),
        limit_x=round(limit * scale, 1),
    )


def picture(space: Space) -> Markup:
    return render("space_picture.html", view=drawing(space))


@router.get("/space")
@slow("record_work")
def space(request: Request, caller: OperationsCaller) -> HTMLResponse:
    web = context_of(request)
    view = space_view(web.site, caller, web.board.usual())
    return page(request, "space.html", caller=caller, space=view, picture=picture(view))
