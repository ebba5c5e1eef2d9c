"""OCFL 1.1: the inventory of an object, where it lies in a storage root, and what its next version is.

Nothing here writes; `writer` does. Only what arkline uses of OCFL is here: sha512, versions
v1, v2 ... without padding, forward deltas, and the registered layout 0003, whose folder names can be read.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline import names
from pipeline.fixity import OF_RECORD
from pipeline.outcome import content, system
from pipeline.records import SubmissionMode

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
"""Characters of an encoded identifier that the layout takes as they are; longer ones are cut and hashed."""

_JID = re.compile(r"(?:\A|\n)jid=(\w+)\Z")


class User(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    name: str
    address: str | None = None


class Version(BaseModel):
    """One version's block: which digest stands behind each logical path."""

    model_config = ConfigDict(frozen=True, extra="allow")
    created: datetime
    state: dict[str, tuple[str, ...]]
    message: str = ""
    user: User | None = None

    @property
    def jid(self) -> str | None:
        """The job that made this version."""
        found = _JID.search(self.message)
        return found[1] if found else None

    def digests(self) -> dict[str, str]:
        """Logical path -> digest."""
        return {path: digest for digest, paths in self.state.items() for path in paths}


class Inventory(BaseModel):
    """`inventory.json`; fields of other writers, as `fixity`, are kept."""

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
        """The version that carries this job's id."""
        for name, version in self.versions.items():
            if version.jid == jid:
                return int(name[1:])
        return None

    def encode(self) -> bytes:
        return self.model_dump_json(by_alias=True, exclude_none=True, indent=1).encode() + b"\n"


@dataclass(frozen=True)
class Change:
    """What a job wants of an object; `files` maps logical paths to sha512."""

    ark: str
    jid: str
    mode: SubmissionMode
    files: Mapping[str, str]
    delete: tuple[str, ...]
    created: datetime
    message: str = ""
    user: str = ""


def object_path(identifier: str) -> Path:
    """Where the layout puts the object, relative to the storage root."""
    digest = hashlib.sha256(identifier.encode()).hexdigest()
    folder = "".join(
        c if re.fullmatch(r"[A-Za-z0-9_-]", c) else "".join(f"%{byte:02x}" for byte in c.encode())
        for c in identifier
    )
    if len(folder) > _ENCAPSULATION_LIMIT:
        folder = f"{folder[:_ENCAPSULATION_LIMIT]}-{digest}"
    return Path(digest[0:3], digest[3:6], digest[6:9], folder)


def sidecar(inventory: bytes) -> bytes:
    """The text beside an inventory that has its digest."""
    return f"{hashlib.sha512(inventory).hexdigest()}  {INVENTORY}\n".encode()


def parse(data: bytes, path: Path | str) -> Inventory:
    try:
        found = Inventory.model_validate_json(data)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        raise system(f"{path} is damaged: {reason}; restore it from its version's folder") from error
    if found.digest_algorithm != OF_RECORD:
        raise system(f"{path} uses {found.digest_algorithm}; arkline adds to {OF_RECORD} objects only")
    return found


def read_head(folder: Path) -> Inventory | None:
    """The inventory in the object's root folder; None if there is no such object.

    Its sidecar is not asked: a writer replaces the two one after the other, and each is always whole.
    """
    path = folder / INVENTORY
    try:
        return parse(path.read_bytes(), path)
    except FileNotFoundError:
        if not folder.exists():
            return None
    try:
        return parse(path.read_bytes(), path)  # the object, which appears whole, came between the two looks
    except FileNotFoundError:
        raise system(f"{folder} has no {INVENTORY}: it is not an OCFL object") from None


def read_version(folder: Path) -> Inventory:
    """The inventory of a version's own folder, checked against its sidecar; neither ever changes."""
    return vouched((folder / INVENTORY).read_bytes(), (folder / SIDECAR).read_bytes(), folder / INVENTORY)


def vouched(data: bytes, beside: bytes, path: Path | str) -> Inventory:
    """An inventory that has the digest in `beside`, its sidecar."""
    if beside.split()[:1] != sidecar(data).split()[:1]:
        raise system(f"{path} does not have the digest in {SIDECAR}: it is damaged")
    return parse(data, path)


def first_paths(files: Mapping[str, str]) -> dict[str, str]:
    """Digest -> the first of its logical paths: equal files are kept once, under that name."""
    first: dict[str, str] = {}
    for path in sorted(files):
        first.setdefault(files[path], path)
    return first


def next_version(head: Inventory | None, change: Change) -> Inventory:
    """The inventory with one version more; StepFailed(content) if the change cannot be made of the head."""
    number = head.number + 1 if head else 1
    name = f"v{number}"
    digests = _state(head, change)
    state: dict[str, list[str]] = {}
    for path in sorted(digests):
        state.setdefault(digests[path], []).append(path)
    version = Version(
        created=change.created,
        state={digest: tuple(paths) for digest, paths in state.items()},
        message=f"{change.message}\njid={change.jid}".lstrip("\n"),
        user=_user(change.user),
    )
    held = head.manifest if head else {}
    brought = {
        digest: (f"{name}/{CONTENT}/{path}",)
        for digest, path in first_paths(change.files).items()
        if digest not in held
    }
    if head is None:
        return Inventory(id=change.ark, head=name, manifest=brought, versions={name: version})
    return head.model_copy(
        update={
            "head": name,
            "manifest": {**held, **brought},
            "versions": {**head.versions, name: version},
        }
    )


def extends(longer: Inventory, shorter: Inventory) -> bool:
    """Whether `longer` is `shorter` with exactly one version more."""
    return (
        longer.id == shorter.id
        and longer.number == shorter.number + 1
        and {name: longer.versions.get(name) for name in shorter.versions} == shorter.versions
        and len(longer.versions) == len(shorter.versions) + 1
        and shorter.manifest.items() <= longer.manifest.items()
    )


def check_names(paths: Iterable[str]) -> None:
    """StepFailed(content) unless all logical paths are safe and can stand in one object."""
    listed = tuple(paths)
    for path in listed:
        try:
            names.safe_name(path)
        except names.UnsafeName as error:
            raise content(str(error)) from error
    for clash in names.duplicates(listed, case_fold=False):
        raise content(f"the object cannot be stored: {clash.reason}")


def _state(head: Inventory | None, change: Change) -> dict[str, str]:
    """Logical path -> digest in the new version."""
    digests: dict[str, str] = {}
    if change.mode is SubmissionMode.RESET and head is None:
        raise content(f"{change.ark} is to be reset, but there is no such object: submit it with mode add")
    if change.mode is SubmissionMode.UPDATE:
        digests = _carried(head) if head else {}
        for path in change.delete:
            if digests.pop(path, None) is None:
                where = f"version {head.number} of {change.ark}" if head else f"{change.ark}, which is new"
                raise content(f"{names.quote_name(path)} is to be deleted, but it is not in {where}")
    digests |= change.files
    if not digests or (change.delete and not any(path.startswith(names.PRODUCER) for path in digests)):
        raise content(f"{change.ark} would have no file: an object needs at least one")
    check_names(digests)
    return digests


def _carried(head: Inventory) -> dict[str, str]:
    """The depositor's files; our own describe the version that they are in, and no later one."""
    held = head.versions[head.head].digests()
    return {path: digest for path, digest in held.items() if path.startswith(names.PRODUCER)}


def _user(name: str) -> User:
    if "@" in name and " " not in name:
        return User(name=name, address=f"mailto:{name}")
    return User(name=name or "arkline")
