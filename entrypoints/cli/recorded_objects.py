"""Objects over the API: their records and the recorded custody of their files."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter

from entrypoints.cli.api import Client
from operations.objects import ObjectView
from pipeline.preservation.custody import Custody
from pipeline.records import Record

_VIEW: TypeAdapter[ObjectView] = TypeAdapter(ObjectView)


class _Answer(Record):
    object: dict[str, Any]
    custody: dict[str, Any]
    timeline: tuple[dict[str, Any], ...]


def object_view(client: Client, ark: str, version: int | None, *, every: bool) -> ObjectView:
    """The object; its custody as recorded, of one version or of `every` version: no byte is read."""
    first = _read(client, ark, version)
    if not every:
        return first
    numbers = [held.number for held in first.versions]
    custody = _whole([_read(client, ark, number).custody for number in numbers])
    return ObjectView(**{**vars(first), "custody": custody})


def _read(client: Client, ark: str, version: int | None) -> ObjectView:
    answer = client.get(f"/v1/objects/{quote(ark, safe=':')}", _Answer, version=version)
    facts = {**answer.object, "custody": answer.custody, "timeline": answer.timeline}
    return _VIEW.validate_python(facts)


def _whole(parts: Sequence[Custody]) -> Custody:
    return Custody(
        versions=tuple(number for part in parts for number in part.versions),
        began=min(part.began for part in parts),
        ended=max(part.ended for part in parts),
        bytes_read=0,
        read=False,
        complete=all(part.complete for part in parts),
        agrees=all(part.agrees for part in parts),
        files=tuple(file for part in parts for file in part.files),
    )
