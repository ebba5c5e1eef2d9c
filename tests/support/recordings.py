"""Versions to enter in an inventory."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import sha512
from typing import Any

from pipeline.fixity import StoredFile, StoredVersion
from pipeline.inventory.base import Recording

OWNER = "ark:/99999/j2000000"
OTHER_OWNER = "ark:/99999/j2999999"
ARK = "ark:/99999/fk4abc"
FIRST_DAY = datetime(2026, 9, 1, 12, 0, tzinfo=UTC)


def stored_file(path: str, size: int = 10, *, added: bool = True) -> StoredFile:
    return StoredFile(path, size, sha512(path.encode()).hexdigest(), added)


def recording(
    ark: str = ARK,
    number: int = 1,
    jid: str = "jid0000000001",
    files: Iterable[StoredFile] = (),
    **other: Any,
) -> Recording:
    """The version `number`, created on that day of September."""
    version = StoredVersion(
        ark=ark,
        number=number,
        jid=jid,
        created=FIRST_DAY + timedelta(days=number - 1),
        files=tuple(files) or (stored_file("producer/a.jpg"), stored_file("system/mrt-erc.txt")),
        url=f"file:///ocfl/{ark}/v{number}",
    )
    facts: dict[str, Any] = {
        "version": version,
        "mime_types": {"producer/a.jpg": "image/jpeg"},
        "owner": OWNER,
        "collections": ("ark:/99999/m5000000",),
        "local_id": (),
        "erc": (("who", "Tracy Seneca"), ("what", f"Husky Chicken {number}"), ("where", ark)),
        "object_type": "MRT-curatorial",
        "object_role": "MRT-content",
        "aggregate_role": "MRT-none",
        "profile": "demo",
        "bid": "bid0000000001",
        "jid": jid,
        "submitter": "me/Me",
        "payload_name": "4blocks.checkm",
        "ingest_type": "object-manifest",
        "submitted": FIRST_DAY,
    }
    return Recording(**{**facts, **other})


def of_job(name: str, **other: Any) -> Recording:
    """The first version of a separate object."""
    return recording(f"ark:/99999/fk4{name}", jid=f"jid{name}", local_id=(f"local-{name}",), **other)
