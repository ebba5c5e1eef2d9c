"""The page of one stored object: its versions, files and custody, previews, and downloads.

A worker repeats the proof of a version on request, of any size, or the checks of the profile, and the page
follows both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from entrypoints.web.context import WebContext, context_of
from entrypoints.web.limits import slow
from entrypoints.web.middleware import CONTENT_SECURITY_POLICY
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.streaming import View, streaming
from entrypoints.web.pages.templating import page, render, rights
from operations.objects import fixity, objects, recheck, retrieval
from operations.objects.fixity import CustodyProof, ProofState
from operations.objects.previews import Kind, Preview, preview_of
from operations.objects.recheck import Recheck
from operations.objects.retrieval import CURRENT
from pipeline.humanize import counted
from pipeline.inventory.base import InventoryFile, InventoryObject, InventoryVersion
from pipeline.names import PRODUCER
from pipeline.preservation.custody import Custody, FileCustody, size_of
from pipeline.principal import Principal
from pipeline.records import now
from pipeline.working_storage.capacity import in_units
from zkstate.errors import Missing

router = page_router()

FOLLOWED = 1.0
"""Seconds between two checks of a proof."""

LISTED = 2000
"""Files in the tree of a version."""

EVENTS = 100
"""Latest events in the timeline."""


@dataclass(frozen=True)
class Verdict:
    sentence: str
    tone: str


@dataclass
class Folder:
    """A folder of a version, while it is filled."""

    name: str
    folders: dict[str, Folder] = field(default_factory=dict)
    files: list[InventoryFile] = field(default_factory=list)
    number: int = 0
    bytes: int = 0


def tree_of(files: Iterable[InventoryFile]) -> Folder:
    """The files in their folders, by name."""
    top = Folder("")
    for file in sorted(files, key=lambda one: one.path):
        folder = top
        for name in (None, *file.path.split("/")[:-1]):
            if name is not None:
                folder = folder.folders.setdefault(name, Folder(name))
            folder.number += 1
            folder.bytes += file.size
        folder.files.append(file)
    return top


@router.get("/objects/{ark:path}")
async def stored_object(
    request: Request,
    caller: PageCaller,
    ark: str,
    version: int | None = None,
    file: str = "",
    asked: str = "",
) -> HTMLResponse:
    """The version, and with `file` a preview of this one of its files.

    `asked`: the request to run the checks again that the page follows.
    """
    web = context_of(request)
    preview = None
    if file:
        chosen = (web.site, web.events, caller, ark, str(version or CURRENT), file)
        preview = await web.preview_work.run(
            request, caller.name, lambda attempt: preview_of(*chosen, attempt)
        )
    answer = await web.record_work.run(
        request, caller.name, lambda _: _object_page(request, caller, ark, version, preview, asked)
    )
    if preview and preview.kind is Kind.PDF:
        answer.headers["Content-Security-Policy"] = f"{CONTENT_SECURITY_POLICY}; frame-src 'self'"
    return answer


def _object_page(
    request: Request,
    caller: Principal,
    ark: str,
    version: int | None,
    preview: Preview | None,
    asked: str,
) -> HTMLResponse:
    web = context_of(request)
    known = objects.visible_object(web.site, caller, ark)
    shown = _chosen(known, version)
    withheld = retrieval.withheld(caller, known)
    return page(
        request,
        "object.html",
        timeline=objects.timeline(web.site.inventory(), objects.as_seen_by(caller, known))[-EVENTS:],
        withheld=withheld,
        is_embargoed=known.embargo is not None and known.embargo.holds(now()),
        preview=preview,
        title=next((value for element, value in known.erc if element == "what"), ""),
        tree=tree_of(shown.files[:LISTED]),
        unlisted=max(0, len(shown.files) - LISTED),
        base=f"/v1/objects/{quote(known.ark, safe='/:')}/versions/{shown.number}",
        **_object_values(web, known, shown, asked, recheck.checks_of(web.site, known)),
    )


@router.post("/objects/{ark:path}")
@slow("record_work")
def prove(
    request: Request,
    caller: PageCaller,
    ark: str,
    version: Annotated[int | None, Form()] = None,
    again: Annotated[bool, Form()] = False,
) -> Response:
    """Start a proof, or the checks of all versions if `again`; redirect to the page that follows the work."""
    web = context_of(request)
    known = objects.visible_object(web.site, caller, ark)
    if again:
        asked = recheck.start_recheck(web.site, caller, known, None)
        shown = _chosen(known, version).number
        return RedirectResponse(
            f"/objects/{quote(known.ark)}?version={shown}&asked={asked.id}#again", status_code=303
        )
    proof = fixity.start_proof(web.site, known, version, caller.identity)
    return RedirectResponse(f"/objects/{quote(known.ark)}?version={proof.version}", status_code=303)


@router.get("/live/objects/{ark:path}")
async def live_object(
    request: Request, caller: PageCaller, ark: str, version: int | None = None, asked: str = ""
) -> Response:
    web = context_of(request)

    def opened() -> tuple[InventoryObject, tuple[str, ...]]:
        known = objects.visible_object(web.site, caller, ark)
        return known, recheck.checks_of(web.site, known)

    known, rules = await web.record_work.run(request, caller.name, lambda _: opened())

    def part() -> str:
        current = objects.visible_object(web.site, caller, ark)  # with the runs since the page was opened
        values = _object_values(web, current, _chosen(current, version), asked, rules)
        return render("object_live.html", **rights(caller), **values)

    view = View(("object", known.ark, str(version), asked, str(caller.role)), part, lambda _: False, FOLLOWED)
    return streaming(request, caller, view)


def _chosen(known: InventoryObject, version: int | None) -> InventoryVersion:
    """The version of this number; by default the current one."""
    (number,) = objects.versions_to_prove(known, version, every=False)
    return next(one for one in known.versions if one.number == number)


def _object_values(
    web: WebContext, known: InventoryObject, shown: InventoryVersion, asked: str, rules: tuple[str, ...]
) -> dict[str, Any]:
    """The values of `object_live.html`: this version's latest proof, or else what is recorded.

    `rules`: the checks of its profile, which is read once, and not each second.
    """
    number = shown.number
    proof = fixity.latest_proof(web.site.inventory(), known, number)
    recorded = objects.object_view(known, (), (number,)).custody
    custody = proof.custody if proof and proof.custody else recorded
    rechecked = _request_of(web, known, asked)
    # in the order in which they ran first
    names = tuple(dict.fromkeys(run.check for one in known.versions for run in one.checks))
    return {
        "shown": shown,
        "runs": shown.checks,
        "checked": {file.path: _checked(file, names) for file in shown.files} if names else {},
        "object": known,
        "number": number,
        "size": size_of(known, (number,)),
        "proof": proof,
        "proving": proof is not None and proof.ended is None,
        "rechecked": rechecked,
        "again": rechecked and _checked_again(rechecked),
        "rules": rules,
        "busy": any(one is not None and one.ended is None for one in (proof, rechecked)),
        "custody": custody,
        "verdict": _unproved(proof) if proof and proof.custody is None else _verdict(custody),
    }


def _request_of(web: WebContext, known: InventoryObject, asked: str) -> Recheck | None:
    """None also if the request is no longer kept: its runs are on the page."""
    try:
        return recheck.recheck_of(web.site, asked, known) if asked else None
    except Missing:
        return None


def _checked_again(request: Recheck) -> Verdict:
    if request.state is ProofState.WAITING:
        return Verdict("A worker will check all versions again.", "")
    if request.ended is None:
        ended = counted(len(request.checked), "run has", "runs have")
        return Verdict(f"A worker checks all versions again: {ended} ended.", "")
    if request.message:
        return Verdict(f"Nothing was checked: {request.message}.", "bad")
    problems = "; ".join(
        f"version {one.version} was not checked by {one.check}: {one.problem}" for one in request.not_checked
    )
    done = f"All versions were checked again at {request.ended:%Y-%m-%d %H:%M:%S} UTC"
    if problems:
        return Verdict(f"{done}, but {problems}.", "bad")
    return Verdict(f"{done}: the checks below have what they found.", "good")


def _checked(file: InventoryFile, names: tuple[str, ...]) -> tuple[str, ...]:
    """What each check says of the file; a check that says nothing did not check it."""
    if not file.path.startswith(PRODUCER):
        return ()
    texts = []
    for name in names:
        of_check = [finding for finding in file.findings if finding.check == name]
        for finding in of_check:
            what = "; ".join(filter(None, (finding.code, finding.message)))
            texts.append(f"{name}: {finding.verdict.label}" + (f" ({what})" if what else ""))
        if not of_check:
            texts.append(f"{name}: not checked")
    return tuple(texts)


def _unproved(proof: CustodyProof) -> Verdict:
    if proof.state is ProofState.FAILED:
        return Verdict(f"The proof could not be made: {proof.message}.", "bad")
    if proof.state is ProofState.WAITING:
        return Verdict(f"The proof begins when {proof.ahead} others that wait have begun.", "")
    return Verdict(f"{in_units(proof.bytes_read)} of {in_units(proof.bytes_total)} are read.", "")


def _verdict(custody: Custody) -> Verdict:
    if not custody.read:
        if custody.agrees:
            return Verdict("The records of download and storage agree. The stored bytes were not read.", "")
        return Verdict("The records of download and storage differ: see the files below.", "bad")
    done = f"{in_units(custody.bytes_read)} were read from storage at {custody.ended:%Y-%m-%d %H:%M:%S} UTC"
    if custody.agrees:
        return Verdict(f"Every file is as it was deposited: {done}, and every digest agrees.", "good")
    if any(map(_differs_in_storage, custody.files)):
        return Verdict(
            f"Storage does not have the bytes that were stored: {done}. See the files below.", "bad"
        )
    if any(file.problems for file in custody.files):
        what = "Storage has the bytes that were stored, but the inventory says otherwise"
        return Verdict(f"{what}: {done}. See the files below.", "bad")
    what = "Every file is as it was stored, but the files in which storage describes the object are damaged"
    return Verdict(f"{what}: {done}. The fixity report names them.", "bad")


def _differs_in_storage(file: FileCustody) -> bool:
    """Whether the bytes are neither those that were downloaded nor those that the inventory says."""
    if not file.problems or file.storage is None:  # a file that only storage has
        return False
    known = {record.sha512 for record in (file.download, file.storage) if record}
    return file.now is None or file.now.sha512 not in known
