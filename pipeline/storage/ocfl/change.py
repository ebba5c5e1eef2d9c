"""What a request means for an OCFL object, and how a version is described; the same wherever objects lie."""

import re
from collections.abc import Callable

from pipeline.errors import UsageRefused
from pipeline.files import ContentFile, StoredFile, StoredVersion
from pipeline.outcome import content, system
from pipeline.records import now
from pipeline.storage.base import StoreRequest
from pipeline.storage.ocfl import objects


def check(request: StoreRequest) -> None:
    """StepFailed if no object could take this."""
    if not re.fullmatch(r"\w+", request.jid):
        raise system(f"'{request.jid}' is not a job id")
    if not request.files:
        raise content(f"{request.ark} has no file to store: an object needs at least one")
    objects.check_names(file.path for file in request.files)


def grown(request: StoreRequest, head: objects.Inventory | None) -> objects.Inventory:
    """The inventory with the version that is asked for; StepFailed if this object cannot take it."""
    if request.new and head:
        raise system(
            f"{request.ark} was just minted, but it names an object already: the counter of minted "
            "identifiers was reset; set it beyond the last ARK in storage, then submit again"
        )
    change = objects.Change(
        ark=request.ark,
        jid=request.jid,
        mode=request.mode,
        files={file.path: file.sha512 for file in request.files},
        delete=request.delete,
        created=request.created or now(),
        message=request.message,
        user=request.user,
    )
    return objects.next_version(head, change)


def describe(
    inventory: objects.Inventory, number: int, size_of: Callable[[str], int], url: str
) -> StoredVersion:
    """`size_of` tells the bytes of a stored file by its path in the object."""
    name = f"v{number}"
    version = inventory.versions[name]
    files = []
    for path, sha512 in sorted(version.digests().items()):
        place = inventory.manifest[sha512][0]
        files.append(StoredFile(path, size_of(place), sha512, added=place.startswith(f"{name}/")))
    return StoredVersion(
        ark=inventory.id,
        number=number,
        jid=version.jid or "",
        created=version.created,
        files=tuple(files),
        url=url,
    )


def check_kept(
    version: StoredVersion, own: objects.Inventory, head: objects.Inventory | None, folder: str
) -> None:
    """StepFailed unless the version's own inventory, the object's and what was stored are of one mind."""
    name = f"v{version.number}"
    if head is None or name not in own.versions or head.versions.get(name) != own.versions[name]:
        raise system(f"{folder}/{name} is not what {folder}/{objects.INVENTORY} says of it")
    if own.versions[name].digests() != {file.path: file.sha512 for file in version.files}:
        raise system(f"{folder}/{name} does not have the files that were stored for {version.jid}")


def check_here(ark: str, url: str, scheme: str, root: str) -> None:
    """UsageRefused if the object was stored in another kind of storage than this root."""
    if not url.startswith(scheme):
        raise UsageRefused(
            f"{ark} was stored at {url}, but the settings name the OCFL root {root}: give "
            "this command the storage settings that the workers have"
        )


def unlike(file: ContentFile | StoredFile, found: tuple[int, str]) -> str:
    """How bytes with the size and sha512 `found` differ from the file's."""
    size, sha512 = found
    if size != file.size:
        return f"it has {size} bytes, not {file.size}"
    return f"its sha512 is {sha512}, not {file.sha512}"
