"""OCFL 1.1: the inventory of an object, and the inventory of its next version.

Only the parts of OCFL that arkline uses are here: sha512, versions v1, v2 ... without padding, and forward
deltas.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.fixity import OF_RECORD
from pipeline.outcome import damaged, system
from pipeline.records import now, reused
from pipeline.storage.base import StoreRequest
from pipeline.storage.rules import carried_paths, check_names

OBJECT_DECLARATION = ("0=ocfl_object_1.1", b"ocfl_object_1.1\n")
INVENTORY = "inventory.json"
SIDECAR = f"{INVENTORY}.{OF_RECORD}"
CONTENT = "content"

_JOB = re.compile(r"(?:\A|\n)(?:key=([0-9a-f]{32})\n)?jid=(\w+)\Z")
"""The last lines of a version's message. The id comes last: releases before 0.2.1 look for it there."""


class User(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    name: str
    address: str | None = None


class Version(BaseModel):
    """The block of one version: the digest of every logical path."""

    model_config = ConfigDict(frozen=True, extra="allow")
    created: datetime
    state: dict[str, tuple[str, ...]]
    message: str = ""
    user: User | None = None

    @property
    def jid(self) -> str | None:
        """The job that created this version."""
        match = _JOB.search(self.message)
        return match[2] if match else None

    @property
    def key(self) -> str:
        """The key of that job; empty for a job of a release before 0.2.1."""
        match = _JOB.search(self.message)
        return (match[1] or "") if match else ""

    def digests(self) -> dict[str, str]:
        """Logical path -> digest."""
        return {path: digest for digest, paths in self.state.items() for path in paths}


class Inventory(BaseModel):
    """`inventory.json`; fields of other writers, such as `fixity`, are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)
    id: str
    type: str = "https://ocfl.io/1.1/spec/#inventory"
    digest_algorithm: str = Field(OF_RECORD, alias="digestAlgorithm")
    head: str = Field(pattern=r"^v[1-9]\d*$")
    content_directory: str = Field(CONTENT, alias="contentDirectory")
    manifest: dict[str, tuple[str, ...]]
    versions: dict[str, Version]

    @property
    def number(self) -> int:
        return int(self.head[1:])

    def number_of(self, jid: str, key: str) -> int | None:
        """The job's version; StepFailed if another job with the same id created one."""
        for name, version in self.versions.items():
            if version.jid == jid:
                if key and version.key and key != version.key:
                    raise reused(jid, f"it stored version {name[1:]} of {self.id}")
                return int(name[1:])
        return None

    def encode(self) -> bytes:
        return self.model_dump_json(by_alias=True, exclude_none=True, indent=1).encode() + b"\n"


def sidecar(inventory: bytes) -> bytes:
    """The sidecar of an inventory: its digest and its name."""
    return f"{hashlib.sha512(inventory).hexdigest()}  {INVENTORY}\n".encode()


def parse(data: bytes, path: Path | str) -> Inventory:
    try:
        inventory = Inventory.model_validate_json(data)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        raise damaged(f"{path} is damaged: {reason}; restore it from its version's folder") from error
    if inventory.digest_algorithm != OF_RECORD:
        raise system(f"{path} uses {inventory.digest_algorithm}; arkline adds to {OF_RECORD} objects only")
    return inventory


def first_paths(files: Mapping[str, str]) -> dict[str, str]:
    """Digest -> the first of its logical paths: equal files are stored once, under that name."""
    first: dict[str, str] = {}
    for path in sorted(files):
        first.setdefault(files[path], path)
    return first


def next_inventory(head: Inventory | None, request: StoreRequest) -> Inventory:
    """The inventory with the requested version added; StepFailed if this object cannot accept the request.

    `check_request` has accepted the request, with the names of its files.
    """
    latest = head.versions[head.head].digests() if head else {}
    carried = carried_paths(request, head.number if head else 0, latest)
    digests = {path: latest[path] for path in carried} | request.digests
    if carried:
        check_names(digests)
    name = f"v{head.number + 1 if head else 1}"
    state: dict[str, list[str]] = {}
    for path in sorted(digests):
        state.setdefault(digests[path], []).append(path)
    key = f"key={request.key}" if request.key else ""
    version = Version(
        created=request.created or now(),
        state={digest: tuple(paths) for digest, paths in state.items()},
        message="\n".join(filter(None, (request.message, key, f"jid={request.jid}"))),
        user=_user(request.user),
    )
    existing = head.manifest if head else {}
    added = {
        digest: (f"{name}/{CONTENT}/{path}",)
        for digest, path in first_paths(request.digests).items()
        if digest not in existing
    }
    if head is None:
        return Inventory(id=request.ark, head=name, manifest=added, versions={name: version})
    return head.model_copy(
        update={
            "head": name,
            "manifest": {**existing, **added},
            "versions": {**head.versions, name: version},
        }
    )


def extends(longer: Inventory, shorter: Inventory) -> bool:
    """Whether `longer` is `shorter` with exactly one version added."""
    return (
        longer.id == shorter.id
        and longer.number == shorter.number + 1
        and {name: longer.versions.get(name) for name in shorter.versions} == shorter.versions
        and len(longer.versions) == len(shorter.versions) + 1
        and shorter.manifest.items() <= longer.manifest.items()
    )


def _user(name: str) -> User:
    if "@" in name and " " not in name:
        return User(name=name, address=f"mailto:{name}")
    return User(name=name or "arkline")
