"""The page of a stored object: its versions, its files, and the proof of custody, made again on demand."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from entrypoints.cli import context as opened
from entrypoints.web.context import WebContext, context_of
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import page
from operations import objects
from operations.objects import ObjectView
from operations.visibility import check_object_visible
from pipeline.errors import UsageRefused
from pipeline.preservation.custody import Custody
from pipeline.preservation.proof import size_of
from pipeline.principal import Principal
from pipeline.working_storage.capacity import in_units
from zkstate.errors import Missing

router = page_router()

LARGEST = 1 << 30
"""Bytes that a page reads from storage at once; larger objects are proved by `arkline object`."""


@dataclass(frozen=True)
class Proof:
    sentence: str
    tone: str


@router.get("/objects")
def search(request: Request, caller: PageCaller, ark: str = "") -> Response:
    if ark:
        return RedirectResponse(f"/objects/{quote(ark.strip())}", status_code=303)
    return page(request, "objects.html", caller=caller)


@router.get("/objects/{ark:path}")
def one(request: Request, caller: PageCaller, ark: str, prove: str = "") -> HTMLResponse:
    web = context_of(request)
    view = _view(web, caller, ark, reading=prove == "now")
    return page(request, "object.html", caller=caller, object=view, proof=_proof(view.custody))


def _view(web: WebContext, caller: Principal, ark: str, *, reading: bool) -> ObjectView:
    inventory = web.archive()
    if inventory is None:
        raise Missing("the inventory is empty: no object has been stored yet")
    known = objects.known_object(inventory, ark)
    check_object_visible(web.session, caller, known, web.archive)
    numbers = objects.versions_to_prove(known, None, every=False)
    size = size_of(known, numbers)
    if reading and size > LARGEST:
        raise UsageRefused(
            f"{ark} has {in_units(size)}, and a page reads {in_units(LARGEST)} at most: "
            f"prove it by the command `arkline object {ark}`"
        )
    storage = opened.storage(web.settings, inventory) if reading else None
    events = objects.timeline(inventory, known)
    return objects.object_view(known, events, numbers, storage, lambda _: None, lambda: False)


def _proof(custody: Custody) -> Proof:
    if not custody.read:
        if custody.agrees:
            return Proof("The records of download and storage agree. The stored bytes were not read now.", "")
        return Proof("The records of download and storage differ: see the files below.", "bad")
    done = f"{in_units(custody.bytes_read)} were read from storage at {custody.ended:%Y-%m-%d %H:%M:%S} UTC"
    if custody.agrees:
        return Proof(f"Every file is as it was deposited: {done}, and every digest agrees.", "good")
    return Proof(f"Storage does not have the bytes that were stored: {done}. See the files below.", "bad")
