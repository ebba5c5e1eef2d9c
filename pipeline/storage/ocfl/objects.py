"""OCFL 1.1: the inventory of an object, its folder in the storage root, and its next version.

Nothing here writes. Only the parts of OCFL that arkline uses are here: sha512, versions v1, v2 ... without
padding, forward deltas, and the registered layout 0003, whose folder names are readable.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.fixity import OF_RECORD
from pipeline.outcome import system
from pipeline.records import now
from pipeline.storage.base import StoreRequest
from pipeline.storage.rules import carried_paths, check_names

ROOT_DECLARATION = ("0=ocfl_1.1", b"ocfl_1.1\n")
OBJECT_DECLARATION = ("0=ocfl_object_1.1", b"ocfl_object_1.1\n")
LAYOUT = "0003-hash-and-id-n-tuple-storage-layout"
LAYOUT_CONFIGURATION: Mapping[str, Any] = {
    "extensionName": LAYOUT,
    "digestAlgorithm": "sha256",
    "tupleSize": 3,
    "numberOfTuples": 3,
}
LAYOUT_DESCRIPTION = "Three folders of three letters from the sha256 of the identifier, then the identifier"
INVENTORY = "inventory.json"
SIDECAR = f"{INVENTORY}.{OF_RECORD}"
CONTENT = "content"

_ENCAPSULATION_LIMIT = 100
"""Maximum characters of an encoded identifier; the layout cuts longer ones and appends a hash."""

_JID = re.compile(r"(?:\A|\n)jid=(\w+)\Z")


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
        match = _JID.search(self.message)
        return match[1] if match else None

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

    def number_of(self, jid: str) -> int | None:
        """The version with this job's id."""
        for name, version in self.versions.items():
            if version.jid == jid:
                return int(name[1:])
        return None

    def encode(self) -> bytes:
        return self.model_dump_json(by_alias=True, exclude_none=True, indent=1).encode() + b"\n"


def object_path(identifier: str) -> Path:
    """The object's folder by the layout, relative to the storage root."""
    digest = hashlib.sha256(identifier.encode()).hexdigest()
    folder = "".join(
        c if re.fullmatch(r"[A-Za-z0-9_-]", c) else "".join(f"%{byte:02x}" for byte in c.encode())
        for c in identifier
    )
    if len(folder) > _ENCAPSULATION_LIMIT:
        folder = f"{folder[:_ENCAPSULATION_LIMIT]}-{digest}"
    return Path(digest[0:3], digest[3:6], digest[6:9], folder)


def sidecar(inventory: bytes) -> bytes:
    """The sidecar of an inventory: its digest and its name."""
    return f"{hashlib.sha512(inventory).hexdigest()}  {INVENTORY}\n".encode()


def parse(data: bytes, path: Path | str) -> Inventory:
    try:
        inventory = Inventory.model_validate_json(data)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        raise system(f"{path} is damaged: {reason}; restore it from its version's folder") from error
    if inventory.digest_algorithm != OF_RECORD:
        raise system(f"{path} uses {inventory.digest_algorithm}; arkline adds to {OF_RECORD} objects only")
    return inventory


def read_head(folder: Path) -> Inventory | None:
    """The inventory in the object's root folder; None if there is no such object.

    Its sidecar is not compared: a writer replaces inventory and sidecar one after the other, atomically.
    """
    path = folder / INVENTORY
    try:
        return parse(path.read_bytes(), path)
    except FileNotFoundError:
        if not folder.exists():
            return None
    try:
        return parse(path.read_bytes(), path)  # the object appeared, complete, between the two calls
    except FileNotFoundError:
        raise system(f"{folder} has no {INVENTORY}: it is not an OCFL object") from None


def parse_checked(data: bytes, beside: bytes, path: Path | str) -> Inventory:
    """An inventory that matches `beside`, its sidecar; StepFailed(system) if it does not."""
    if beside.split()[:1] != sidecar(data).split()[:1]:
        raise system(f"{path} does not have the digest in {SIDECAR}: it is damaged")
    return parse(data, path)


def first_paths(files: Mapping[str, str]) -> dict[str, str]:
    """Digest -> the first of its logical paths: equal files are stored once, under that name."""
    first: dict[str, str] = {}
    for path in sorted(files):
        first.setdefault(files[path], path)
    return first


def next_inventory(head: Inventory | None, request: StoreRequest) -> Inventory:
    """The inventory with the requested version added; StepFailed if this object cannot accept the request."""
    number = head.number + 1 if head else 1
    name = f"v{number}"
    digests = _state(head, request)
    state: dict[str, list[str]] = {}
    for path in sorted(digests):
        state.setdefault(digests[path], []).append(path)
    version = Version(
        created=request.created or now(),
        state={digest: tuple(paths) for digest, paths in state.items()},
        message=f"{request.message}\njid={request.jid}".lstrip("\n"),
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


def _state(head: Inventory | None, request: StoreRequest) -> dict[str, str]:
    """Logical path -> digest in the new version."""
    latest = head.versions[head.head].digests() if head else {}
    carried = carried_paths(request, head.number if head else 0, latest)
    digests = {path: latest[path] for path in carried} | request.digests
    check_names(digests)
    return digests


def _user(name: str) -> User:
    if "@" in name and " " not in name:
        return User(name=name, address=f"mailto:{name}")
    return User(name=name or "arkline")
