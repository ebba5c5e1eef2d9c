"""Objects in the inventory: versions, files with their digests, fixity, events, and proofs of custody."""

from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Body, Depends, Path, Query, Request, Response
from pydantic import Field
from pydantic_core import to_json

from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import Caller, OperatorCaller
from entrypoints.web.composed import LargeJson, Xml, members, portions, with_list
from entrypoints.web.context import context_of, site_of
from entrypoints.web.limits import LONG, slow
from entrypoints.web.parameters import LIMIT, Cursor, Limit, decode_number, linked
from entrypoints.web.routes.jobs import premis_answer
from operations.objects import fixity, objects, recheck
from operations.objects.fixity import CustodyProof
from operations.objects.recheck import Recheck
from operations.objects.retrieval import premis_of, verified_view
from operations.objects.search import QUERY_LIMIT, ObjectList, find_objects
from pipeline.attempt import Attempt
from pipeline.checks import CHECK_NAME, CODE_LIMIT, CheckVerdict
from pipeline.inventory.search.by_findings import FindingSearch
from pipeline.preservation.custody import Custody, Reading, size_of
from pipeline.principal import Principal
from pipeline.records import Record, SentRecord

router = api_router("/v1/objects", "objects")

Ark = Annotated[
    str,
    Path(
        max_length=255,
        examples=["ark:/99999/fk4abc"],
        description="The ARK of the object, also without its prefix (`fk4abc`), or its local id.",
    ),
]
ProofId = Annotated[str, Path(pattern="^[0-9a-f]{16}$", examples=["0123456789abcdef"])]
Version = Annotated[int | None, Query(ge=1, le=1_000_000, description="null: the current one.")]


Every = Annotated[bool, Query(description="Every version.")]


class ProofRequest(SentRecord):
    version: int | None = Field(None, ge=1, le=1_000_000, description="null: the current one.")


class RecheckRequest(SentRecord):
    check: str | None = Field(None, pattern=CHECK_NAME, description="null: all checks of the profile.")


class ObjectRecord(Record):
    """An object; `custody.read` says whether its files were read, or only their records compared."""

    object: dict[str, Any]
    custody: dict[str, Any]
    timeline: tuple[dict[str, Any], ...]


def finding_search(
    code: Annotated[
        str | None,
        Query(
            max_length=CODE_LIMIT, description="The name of a virus, a format such as `fmt/40`, an obstacle."
        ),
    ] = None,
    verdict: Annotated[
        CheckVerdict | None,
        Query(description="`unchecked` means files that were not checked, for any reason."),
    ] = None,
    check: Annotated[str | None, Query(pattern=CHECK_NAME, description="The name of a check.")] = None,
    outdated: Annotated[
        bool, Query(description="Only objects last checked by an older version of a check than its newest.")
    ] = False,
) -> FindingSearch:
    """What checks found: every condition that is given has to hold of one finding."""
    return FindingSearch(code=code, verdict=verdict, check=check, outdated=outdated)


@router.get("", summary="Objects, by a text and by what checks found in them")
@slow("record_work")
def list_objects(  # noqa: PLR0913 - the conditions of a search
    request: Request,
    response: Response,
    caller: Caller,
    search: Annotated[FindingSearch, Depends(finding_search)],
    q: Annotated[
        str, Query(max_length=QUERY_LIMIT, description="Words, or beginnings of words; all have to match.")
    ] = "",
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> ObjectList:
    """`q` is looked for in titles, creators, dates, ARKs, local ids, names and digests of files, collections,
    submitters, and names of deposits, batches and jobs. An object with this ARK or local id comes first, then
    titles, then all others, the newest first. `indexing` is given while some objects cannot be found as yet.

    The last run of each check counts. With `verdict=unchecked`, versions without a run are meant too.
    `outdated` alone finds whatever an older version of a check has read, such as older signatures.
    """
    page = find_objects(site_of(request), caller, search, limit, decode_number(cursor), q)
    return linked(request, response, page)


@router.post(
    "/{ark:path}/proofs",
    status_code=202,
    summary="Prove the custody of a version: read every byte",
)
@slow("record_work")
def start_proof(
    request: Request,
    response: Response,
    caller: Caller,
    ark: Ark,
    body: Annotated[ProofRequest, Body()] = ProofRequest(version=None),  # noqa: B008 - frozen
) -> CustodyProof:
    """A worker checks the object now; the progress and the result are at the address in `Location`.

    While a proof of the same version has not ended, the answer is that proof. The last one of each version is
    kept.
    """
    known = objects.visible_object(site_of(request), caller, ark)
    proof = fixity.start_proof(site_of(request), known, body.version, caller.identity)
    response.headers["Location"] = f"{router.prefix}/{quote(known.ark, safe='/:')}/proofs/{proof.id}"
    return proof


@router.get(
    "/{ark:path}/proofs/{proof}",
    summary="The progress of a proof, and its result",
    response_model=CustodyProof,
)
@slow("record_work")
def show_proof(request: Request, caller: Caller, ark: Ark, proof: ProofId, attempt: Attempt) -> LargeJson:
    """`custody.agrees` of a proof that is done says whether every file is as it was deposited."""
    known = objects.visible_object(site_of(request), caller, ark)
    asked = fixity.proof_of(site_of(request).inventory(), proof, known)
    document = (
        (name, _custody(value) if isinstance(value, Custody) else (to_json(value),)) for name, value in asked
    )
    return LargeJson(members(document), attempt)


@router.post(
    "/{ark:path}/rechecks", status_code=202, summary="Check the object again by the checks of its profile"
)
@slow("record_work")
def start_recheck(
    request: Request,
    response: Response,
    caller: OperatorCaller,
    ark: Ark,
    body: Annotated[RecheckRequest, Body()] = RecheckRequest(check=None),  # noqa: B008 - frozen
) -> Recheck:
    """A worker checks all versions now; the progress and the result are at the address in `Location`.

    While a request for the same check has not ended, the answer is that request. The last one is kept.
    """
    known = objects.visible_object(site_of(request), caller, ark)
    asked = recheck.start_recheck(site_of(request), caller, known, body.check)
    response.headers["Location"] = f"{router.prefix}/{quote(known.ark, safe='/:')}/rechecks/{asked.id}"
    return asked


@router.get(
    "/{ark:path}/rechecks/{recheck_id}", summary="The progress of a request to check the object again"
)
@slow("record_work")
def show_recheck(request: Request, caller: Caller, ark: Ark, recheck_id: ProofId) -> Recheck:
    """`checked` has the runs so far, `not_checked` what could not be checked once the request has ended."""
    known = objects.visible_object(site_of(request), caller, ark)
    return recheck.recheck_of(site_of(request), recheck_id, known)


@router.get(
    "/{ark:path}/custody",
    summary="One object, with its custody as storage has it now",
    response_model=ObjectRecord,
)
@slow("slow_work", LONG)
def read_object(
    request: Request,
    caller: Caller,
    ark: Ark,
    attempt: Attempt,
    version: Version = None,
    every: Every = False,
) -> LargeJson:
    """Reads every byte of the version before it answers. What takes longer than a request may is a proof."""
    return _shown(request, caller, ark, version, attempt, every=every, read=True)


@router.get(
    "/{ark:path}/premis", summary="All files and events of the object as PREMIS 3", response_class=Xml
)
@slow("slow_work", LONG)
def premis(request: Request, caller: Caller, ark: Ark, attempt: Attempt) -> Xml:
    """The document that `arkline object ARK --premis FILE` writes; its parts are read from storage."""
    site = site_of(request)
    known = objects.visible_object(site, caller, ark)
    document = premis_of(site, context_of(request).events, caller, known)
    return premis_answer(document, attempt, objects.plain_name(known.ark))


@router.get(
    "/{ark:path}", summary="One object: versions, files, custody, events", response_model=ObjectRecord
)
@slow("record_work")
def show_object(
    request: Request,
    caller: Caller,
    ark: Ark,
    attempt: Attempt,
    version: Version = None,
    every: Every = False,
) -> LargeJson:
    """`/custody` and a proof (`/proofs`) also read every byte from storage."""
    return _shown(request, caller, ark, version, attempt, every=every, read=False)


def _shown(  # noqa: PLR0913 - a request has these parts
    request: Request,
    caller: Principal,
    ark: str,
    version: int | None,
    attempt: Attempt,
    *,
    every: bool,
    read: bool,
) -> LargeJson:
    """The object; `read`: storage is read until the attempt is over."""
    site, web = site_of(request), context_of(request)
    known = objects.visible_object(site, caller, ark)
    numbers = objects.versions_to_prove(known, version, every=every)
    events = objects.timeline(site.inventory(), objects.as_seen_by(caller, known))
    reading = None
    if read:
        run = web.run_of(attempt)
        reading = Reading(run.adding(size_of(known, numbers)), run.should_stop)
    view = verified_view(site, web.events, known, events, numbers, reading)
    shown = objects.as_seen_by(caller, known)
    versions = (with_list(one, "files", portions(one.files)) for one in shown.versions)
    document = (
        ("object", with_list(shown, "versions", versions)),
        ("custody", _custody(view.custody)),
        ("timeline", (to_json(view.timeline),)),
    )
    return LargeJson(members(document), attempt)


def _custody(custody: Custody) -> Iterator[bytes]:
    return with_list(custody, "files", portions(custody.files))
