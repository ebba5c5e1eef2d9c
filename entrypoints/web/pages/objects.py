"""The page of a stored object: its versions, its files, and the proof of custody, made again on demand.

A worker reads a proof of any version and any size, and the page follows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from entrypoints.web.context import WebContext, context_of
from entrypoints.web.limits import slow
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.streaming import View, streaming
from entrypoints.web.pages.templating import page, render
from operations.objects import fixity, objects
from operations.objects.fixity import CustodyProof, ProofState
from pipeline.inventory.base import InventoryObject
from pipeline.preservation.custody import Custody, size_of
from pipeline.working_storage.capacity import in_units

router = page_router()

FOLLOWED = 1.0
"""Seconds from one look at a proof to the next."""


@dataclass(frozen=True)
class Verdict:
    sentence: str
    tone: str


@router.get("/objects")
def search(request: Request, caller: PageCaller, ark: str = "") -> Response:
    if ark:
        return RedirectResponse(f"/objects/{quote(ark.strip())}", status_code=303)
    return page(request, "objects.html")


@router.get("/objects/{ark:path}")
@slow("record_work")
def one(request: Request, caller: PageCaller, ark: str, version: int | None = None) -> HTMLResponse:
    web = context_of(request)
    known = objects.visible_object(web.site, caller, ark)
    return page(
        request,
        "object.html",
        timeline=objects.timeline(web.site.inventory(), objects.as_seen_by(caller, known)),
        **_values(web, known, version),
    )


@router.post("/objects/{ark:path}")
@slow("record_work")
def prove(
    request: Request, caller: PageCaller, ark: str, version: Annotated[int | None, Form()] = None
) -> Response:
    """Start a proof, and show the page that follows it."""
    web = context_of(request)
    known = objects.visible_object(web.site, caller, ark)
    proof = fixity.start_proof(web.site, known, version, caller.identity)
    return RedirectResponse(f"/objects/{quote(known.ark)}?version={proof.version}", status_code=303)


@router.get("/live/objects/{ark:path}")
async def live_proof(request: Request, caller: PageCaller, ark: str, version: int | None = None) -> Response:
    web = context_of(request)
    known = await web.record_work.run(
        request, caller.name, lambda _: objects.visible_object(web.site, caller, ark)
    )

    def part() -> str:
        return render("object_live.html", **_values(web, known, version))

    view = View(("object", known.ark, str(version)), part, lambda _: False, FOLLOWED)
    return streaming(request, caller, view)


def _values(web: WebContext, known: InventoryObject, version: int | None) -> dict[str, Any]:
    """What `object_live.html` shows: the latest proof of this version, or else what is recorded."""
    (number,) = objects.versions_to_prove(known, version, every=False)
    proof = fixity.latest_proof(web.site.inventory(), known, number)
    recorded = objects.object_view(known, (), (number,)).custody
    custody = proof.custody if proof and proof.custody else recorded
    return {
        "object": known,
        "number": number,
        "size": size_of(known, (number,)),
        "proof": proof,
        "busy": proof is not None and proof.ended is None,
        "custody": custody,
        "verdict": _unproved(proof) if proof and proof.custody is None else _verdict(custody),
    }


def _unproved(proof: CustodyProof) -> Verdict:
    if proof.state is ProofState.FAILED:
        return Verdict(f"The proof could not be made: {proof.message}.", "bad")
    if proof.state is ProofState.WAITING:
        return Verdict(f"The proof begins when {proof.ahead} others that wait have begun.", "")
    return Verdict(f"{in_units(proof.bytes_read)} of {in_units(proof.bytes_total)} are read.", "")


def _verdict(custody: Custody) -> Verdict:
    if not custody.read:
        if custody.agrees:
            return Verdict(
                "The records of download and storage agree. The stored bytes were not read now.", ""
            )
        return Verdict("The records of download and storage differ: see the files below.", "bad")
    done = f"{in_units(custody.bytes_read)} were read from storage at {custody.ended:%Y-%m-%d %H:%M:%S} UTC"
    if custody.agrees:
        return Verdict(f"Every file is as it was deposited: {done}, and every digest agrees.", "good")
    return Verdict(f"Storage does not have the bytes that were stored: {done}. See the files below.", "bad")
