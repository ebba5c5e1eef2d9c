"""Objects in the inventory: versions, files with their digests, fixity, and events."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from entrypoints.web.authentication import Caller
from entrypoints.web.context import context_of
from operations import objects
from operations.visibility import check_object_visible
from pipeline.errors import UsageRefused
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.sql import SqlInventory
from pipeline.records import Record
from zkstate.errors import Missing

router = APIRouter(prefix="/v1/objects", tags=["objects"])

Ark = Annotated[str, Path(max_length=255, examples=["ark:/99999/fk4abc"])]


class ObjectRecord(Record):
    """An object; `custody` compares what is recorded of its files, without reading storage."""

    object: dict[str, Any]
    custody: dict[str, Any]
    timeline: tuple[dict[str, Any], ...]


@router.get("/{ark:path}", summary="One object: versions, files, custody, events")
def show_object(
    request: Request,
    caller: Caller,
    ark: Ark,
    version: Annotated[int | None, Query(ge=1, le=1_000_000, description="null: the current one.")] = None,
) -> ObjectRecord:
    """`arkline object` also reads every byte from storage."""
    context = context_of(request)
    inventory = context.archive()
    if inventory is None:
        raise Missing(f"there is no object {ark}")
    known = _known(inventory, ark)
    check_object_visible(context.session, caller, known, context.archive)
    numbers = objects.versions_to_prove(known, version, every=False)
    events = objects.timeline(inventory, known)
    view = objects.object_view(known, events, numbers, None, lambda _: None, lambda: False)
    facts = asdict(view)
    return ObjectRecord(custody=facts.pop("custody"), timeline=facts.pop("timeline"), object=facts)


def _known(inventory: SqlInventory, ark: str) -> InventoryObject:
    try:
        return objects.known_object(inventory, ark)
    except UsageRefused as error:  # its hints name objects that the caller may not see
        raise Missing(f"there is no object {ark}") from error
