"""Objects in the inventory: versions, files with their digests, fixity, events, and proofs of custody."""

from dataclasses import asdict
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import Field

from entrypoints.web.authentication import Caller
from entrypoints.web.context import site_of
from entrypoints.web.limits import slow
from operations.objects import fixity, objects
from operations.objects.fixity import CustodyProof
from pipeline.records import Record

router = APIRouter(prefix="/v1/objects", tags=["objects"])

Ark = Annotated[str, Path(max_length=255, examples=["ark:/99999/fk4abc"])]
ProofId = Annotated[str, Path(pattern="^[0-9a-f]{16}$", examples=["0123456789abcdef"])]
Version = Annotated[int | None, Query(ge=1, le=1_000_000, description="null: the current one.")]


class ProofRequest(Record):
    version: int | None = Field(None, ge=1, le=1_000_000, description="null: the current one.")


class ObjectRecord(Record):
    """An object; `custody` compares what is recorded of its files, without reading storage."""

    object: dict[str, Any]
    custody: dict[str, Any]
    timeline: tuple[dict[str, Any], ...]


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


@router.get("/{ark:path}/proofs/{proof}", summary="The progress of a proof, and its result")
@slow("record_work")
def show_proof(request: Request, caller: Caller, ark: Ark, proof: ProofId) -> CustodyProof:
    """`custody.agrees` of a proof that is done says whether every file is as it was deposited."""
    known = objects.visible_object(site_of(request), caller, ark)
    return fixity.proof_of(site_of(request).inventory(), proof, known)


@router.get("/{ark:path}", summary="One object: versions, files, custody, events")
@slow("record_work")
def show_object(request: Request, caller: Caller, ark: Ark, version: Version = None) -> ObjectRecord:
    """A proof (`/proofs`) also reads every byte from storage."""
    site = site_of(request)
    known = objects.visible_object(site, caller, ark)
    numbers = objects.versions_to_prove(known, version, every=False)
    shown = objects.as_seen_by(caller, known)
    events = objects.timeline(site.inventory(), shown)
    view = objects.object_view(shown, events, numbers, None, lambda _: None, lambda: False)
    facts = asdict(view)
    return ObjectRecord(custody=facts.pop("custody"), timeline=facts.pop("timeline"), object=facts)
