"""OCFL 1.1: the files of a storage root, and the inventories of an object and of its next version.

Implements only the parts of OCFL that arkline uses: sha512, versions v1, v2 ... without padding, forward
deltas, and the registered layout 0003, which has readable folder names.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.attempt import Attempt
from pipeline.fixity import OF_RECORD, ContentFile, OnRead, ReadBackFile, StoredFile, StoredVersion
from pipeline.outcome import DamagedObject, StepFailed, damaged, system
from pipeline.records import now, reused
from pipeline.storage.base import StoreRequest, carried_paths, check_names, describe_mismatch

LAYOUT = "0003-hash-and-id-n-tuple-storage-layout"
_PARAMETERS: Mapping[str, object] = {
    "extensionName": LAYOUT,
    "digestAlgorithm": "sha256",
    "tupleSize": 3,
    "numberOfTuples": 3,
}
_DESCRIPTION = "Three folders of three letters from the sha256 of the identifier, then the identifier"
CONFIGURATION = f"extensions/{LAYOUT}/config.json"
DECLARATION = "0=ocfl_1.1"
DECLARATION_TEXT = b"ocfl_1.1\n"

_ENCAPSULATION_LIMIT = 100
"""Maximum characters of an encoded identifier; the layout truncates longer ones and appends a hash."""


def root_files() -> dict[str, bytes]:
    """Path -> content of the files of a new root; the declaration comes last."""
    return {
        CONFIGURATION: _json(_PARAMETERS),
        "ocfl_layout.json": _json({"extension": LAYOUT, "description": _DESCRIPTION}),
        DECLARATION: DECLARATION_TEXT,
    }


@lru_cache(maxsize=64)
def object_path(identifier: str) -> Path:
    """The object's folder, relative to the storage root; cached, as storing a version needs it nine times."""
    digest = hashlib.sha256(identifier.encode()).hexdigest()
    folder = re.sub(
        r"[^A-Za-z0-9_-]", lambda c: "".join(f"%{byte:02x}" for byte in c[0].encode()), identifier
    )
    if len(folder) > _ENCAPSULATION_LIMIT:
        folder = f"{folder[:_ENCAPSULATION_LIMIT]}-{digest}"
    return Path(digest[0:3], digest[3:6], digest[6:9], folder)


@lru_cache(maxsize=8)
def check_layout(configuration: bytes | None, root: str) -> None:
    """StepFailed unless CONFIGURATION has our layout; cached, so that the same bytes are parsed once."""
    try:
        parameters = json.loads(configuration or b"null")
    except ValueError:
        parameters = None
    if parameters != _PARAMETERS:
        raise system(f"the OCFL root {root} does not have arkline's layout, {LAYOUT}")


def check_free(names: Iterable[str], root: str, remedy: str) -> None:
    """StepFailed if a place with these entries is anything but an unfinished root."""
    foreign = set(names) - {path.partition("/")[0] for path in root_files()}
    if foreign:
        raise system(
            f"the storage root {root} is neither an OCFL root nor empty (it contains "
            f"'{min(foreign)}'): {remedy}"
        )


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


OBJECT_DECLARATION = ("0=ocfl_object_1.1", b"ocfl_object_1.1\n")
INVENTORY = "inventory.json"
SIDECAR = f"{INVENTORY}.{OF_RECORD}"
CONTENT = "content"

_JOB = re.compile(r"(?:\A|\n)(?:key=([0-9a-f]{32})\n)?jid=(\w+)\Z")
"""The last lines of a version's message. The id comes last, where releases before 0.2.1 expect it."""


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
    """`inventory.json`; fields of other writers, such as `fixity`, are preserved."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)
    id: str
    type: str = "https://ocfl.io/1.1/spec/#inventory"
    digest_algorithm: str = Field(OF_RECORD, alias="digestAlgorithm")
    head: str = Field(pattern=r"^v[1-9]\d*$")
    content_directory: str = Field(CONTENT, alias="contentDirectory")
    manifest: dict[str, tuple[str, ...]]
    versions: dict[str, Version]

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        """Readers rely on this: a damaged inventory must not end the reading of the others."""
        if self.versions.keys() != {f"v{number}" for number in range(1, len(self.versions) + 1)} or (
            self.number != len(self.versions)
        ):
            raise ValueError(f"its versions are not v1 to {self.head}")
        if not all(self.manifest.values()):
            raise ValueError("its manifest has a digest without a path")
        return self

    @property
    def number(self) -> int:
        return int(self.head[1:])

    def content_path(self, sha512: str) -> str:
        """The place of these bytes in the object; empty if the manifest lacks them."""
        return self.manifest.get(sha512, ("",))[0]

    def number_of(self, jid: str, key: str) -> int | None:
        """The number of the job's version; StepFailed if another job with the same id created one."""
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


SMALL = 8 << 20
"""Maximum bytes of an inventory that is cached as parsed; larger ones would fill the memory."""

_parse_once = lru_cache(maxsize=2)(Inventory.model_validate_json)
"""The steps of a job read one inventory again and again, as does the export of an object for each version."""


def parse(data: bytes, path: Path | str) -> Inventory:
    try:
        inventory = (_parse_once if len(data) <= SMALL else Inventory.model_validate_json)(data)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise damaged(f"{path} is damaged: {reason}; restore it from its version's folder") from error
    if inventory.digest_algorithm != OF_RECORD:
        raise system(f"{path} uses {inventory.digest_algorithm}; arkline adds to {OF_RECORD} objects only")
    return inventory


def first_paths(files: Mapping[str, str]) -> dict[str, str]:
    """Digest -> the first of its logical paths, the name under which identical files are stored once."""
    first: dict[str, str] = {}
    for path in sorted(files):
        first.setdefault(files[path], path)
    return first


def next_inventory(head: Inventory | None, request: StoreRequest) -> Inventory:
    """The inventory with the requested version added; StepFailed if this object cannot accept the request.

    `check_request` has accepted the request, including the names of its files.
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


_RESTORE = "restore it from a copy of the storage"

NOTHING_KNOWN: Mapping[str, int] = MappingProxyType({})

NOT_IN_MANIFEST = f"{INVENTORY} has no content path for this file"


class StoredObject(Protocol):
    """An OCFL object on disk or in an S3 bucket; files are named by their path in the object."""

    may_be_unfinished: bool = False
    """Whether a stopped writer may leave the latest version without its own inventory and sidecar."""

    def location(self, path: str) -> str:
        """The place of the file, for messages."""

    def version_url(self, number: int) -> str:
        """The StoredVersion.url of a version."""

    def head(self) -> Inventory | None:
        """The object's inventory, not compared with its sidecar; None if there is no such object."""

    def read(self, path: str) -> bytes | None:
        """A small file; None if there is no such file."""

    def size(self, path: str) -> int | None:
        """The file's size in bytes; None if there is no such file."""

    def pieces(self, path: str, start: int = 0) -> Iterator[bytes] | None:
        """The bytes from the offset `start` on, read lazily; None if there is no such file."""

    def digest(self, path: str, on_read: OnRead) -> tuple[int, str] | None:
        """Size and sha512 of the bytes, read now; None if there is no such file."""

    def latest(self) -> Inventory | None:
        """The inventory with the latest complete version."""
        return self.head()

    def unlisted(self) -> Iterable[str]:
        """Files and folders in the object's folder that OCFL does not allow there; none if a stopped writer
        may have left them.
        """
        return ()

    def inventory_of(self, name: str) -> Inventory:
        """The inventory in the version's own folder, checked against its sidecar; neither ever changes."""
        path = f"{name}/{INVENTORY}"
        data, checksum = self.read(path), self.read(f"{name}/{SIDECAR}")
        if data is None or checksum is None:
            raise damaged(f"{self.location(path)} or its sidecar is missing")
        if checksum.split()[:1] != sidecar(data).split()[:1]:
            raise damaged(f"{self.location(path)} does not have the digest in {SIDECAR}: it is damaged")
        return parse(data, self.location(path))

    def has_inventories(self, number: int, data: bytes) -> bool:
        """Whether object and version have exactly this inventory, and the version its sidecar."""
        expected = {f"v{number}/{INVENTORY}": data, f"v{number}/{SIDECAR}": sidecar(data), INVENTORY: data}
        return all(self.read(path) == text for path, text in expected.items())

    def has_copy_of(self, inventory: bytes, name: str) -> bool:
        """False if the version `name` has another inventory in its folder than the object's, `inventory`.

        True also without one, which OCFL does not require of other writers, and a stopped one may not leave.
        """
        return self.read(f"{name}/{INVENTORY}") in (inventory, None)

    def compare_bytes(self, path: str, file: ContentFile | StoredFile, attempt: Attempt) -> None:
        """StepFailed unless the stored bytes have the file's size and digest."""
        actual = self.digest(path, lambda _: attempt.check())
        if actual != (file.size, file.sha512):
            raise self.damaged(path, describe_mismatch(file, actual) if actual else "it is missing")

    def existing_size(self, path: str) -> int:
        size = self.size(path)
        if size is None:
            raise self.damaged(path, "it is missing")
        return size

    def damaged(self, path: str, problem: str) -> DamagedObject:
        return damaged(f"{self.location(path)} is damaged: {problem}; restore it, then resume the job")

    def check_copy(self, inventory: bytes, name: str) -> None:
        """StepFailed unless the object's inventory, whose last version is `name`, has the same copy there.

        The next version would otherwise carry on whatever was changed, and remove what is no longer named.
        """
        if self.has_copy_of(inventory, name):
            return
        self.inventory_of(name)
        if self.read(SIDECAR) != sidecar(inventory):
            raise self.unlike_sidecar(f"from {self.location(name)}")
        raise damaged(
            f"{self.location(INVENTORY)} differs from its copy in {name}: restore the changed one, and its "
            "sidecar, from a copy of the storage; then resume the job"
        )

    def unlike_sidecar(self, source: str) -> StepFailed:
        return system(
            f"{self.location(INVENTORY)} does not have the digest in {SIDECAR}: it is damaged; restore it "
            f"{source}"
        )

    def listed_path(self, inventory: Inventory, sha512: str) -> str:
        """The place of these bytes; DamagedObject if the inventory does not say it."""
        if path := inventory.content_path(sha512):
            return path
        raise self.damaged(INVENTORY, f"it has no content path for a file with the {OF_RECORD} {sha512}")

    def describe(
        self, inventory: Inventory, number: int, sizes: Mapping[str, int] = NOTHING_KNOWN
    ) -> StoredVersion:
        """A version of the inventory. `sizes`: digest -> size, for files that have just been read."""
        version = inventory.versions[f"v{number}"]
        files = []
        for path, sha512 in sorted(version.digests().items()):
            content_path = self.listed_path(inventory, sha512)
            added = content_path.startswith(f"v{number}/")
            size = sizes[sha512] if sha512 in sizes else self.existing_size(content_path)
            files.append(StoredFile(path, size, sha512, added))
        url = self.version_url(number)
        jid, key = version.jid or "", version.key
        return StoredVersion(inventory.id, number, jid, version.created, tuple(files), url, key)


def problems(stored: StoredObject, head: Inventory) -> Iterator[str]:
    """Damage to the files in which storage describes the object, and files that belong to no version."""
    number, latest, root = head.number, head.head, stored.read(INVENTORY)
    for name in (f"v{version}" for version in range(1, number + 1)):
        try:
            stored.inventory_of(name)
        except DamagedObject as damage:
            path = f"{name}/{INVENTORY}"
            if not (stored.may_be_unfinished and name == latest and stored.read(path) is None):
                yield damage.message
    if not stored.has_copy_of(root or b"", latest):
        yield f"{stored.location(INVENTORY)} differs from its copy in {latest}"
    # A writer replaces the sidecar after the inventory, so the previous version's sidecar is no damage.
    sidecars = {sidecar(root or b""), stored.read(f"v{number - 1}/{SIDECAR}")} - {None}
    for path, valid in ((SIDECAR, sidecars), (OBJECT_DECLARATION[0], {OBJECT_DECLARATION[1]})):
        data = stored.read(path)
        if data is None and not stored.may_be_unfinished:
            yield f"{stored.location(path)} is missing"
        elif data is not None and data not in valid:
            yield f"{stored.location(path)} was changed"
    if unlisted := sorted(stored.unlisted()):
        others = f" and {len(unlisted) - 1:,} others belong" if unlisted[1:] else " belongs"
        yield f"{stored.location(unlisted[0])}{others} to no version of the object, and OCFL forbids that"


def pieces(stored: StoredObject, path: str, start: int = 0) -> Iterator[bytes]:
    if not path:
        raise damaged(NOT_IN_MANIFEST)
    try:
        pieces = stored.pieces(path, start)
        if pieces is None:
            raise damaged(f"{stored.location(path)} is missing: {_RESTORE}")
        yield from pieces
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise damaged(f"{stored.location(path)} {problem}: {_RESTORE}") from error


def read_back_file(stored: StoredObject, path: str, on_read: OnRead) -> ReadBackFile:
    if not path:
        return ReadBackFile(0, "", now(), problem=NOT_IN_MANIFEST)
    location = stored.location(path)
    try:
        actual = stored.digest(path, on_read)
    except OSError as error:
        problem = f"{location} cannot be read: {error.strerror or error}"
        return ReadBackFile(0, "", now(), problem=problem, place=location)
    if actual is None:
        return ReadBackFile(0, "", now(), problem=f"{location} is missing", place=location)
    return ReadBackFile(0, "", now(), *actual, place=location)
