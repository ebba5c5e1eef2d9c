"""Reading an object of the storage root back, every byte of it; nothing here writes or takes a lock."""

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from pipeline.attempt import CheckedAttempt
from pipeline.outcome import StepFailed, system, transient
from pipeline.storage.ocfl import disk, objects
from pipeline.storage.ocfl.writer import Root

NOWHERE = f"{objects.INVENTORY} does not say where its bytes are"


@dataclass(frozen=True)
class Read:
    """A file of a version as its bytes are; size and sha512 are None if there is a `problem`."""

    number: int
    path: str
    size: int | None = None
    sha512: str | None = None
    problem: str = ""
    place: str = ""


def read(root: Root, ark: str, path: str, number: int | None) -> bytes | None:
    """One file of the version, or of the latest; None if there is no such thing."""
    folder = root.object(ark)
    head = _latest(root, ark)
    version = head.versions.get(head.head if number is None else f"v{number}") if head else None
    digest = version.digests().get(path) if version else None
    if head is None or digest is None:
        return None
    place = folder / head.manifest[digest][0]
    data = place.read_bytes()
    if hashlib.sha512(data).hexdigest() != digest:
        raise system(f"{place} is damaged: its sha512 is not {digest}; restore it, then resume")
    return data


def _latest(root: Root, ark: str) -> objects.Inventory | None:
    """The head, or the version ahead of it that a stopped writer left and the next one will keep."""
    folder = root.object(ark)
    head = objects.read_head(folder)
    if head is None:
        return None
    try:
        ahead = objects.read_version(folder / f"v{head.number + 1}")
    except (OSError, StepFailed):
        return head
    return ahead if objects.extends(ahead, head) else head


def read_back(
    root: Root, ark: str, numbers: Collection[int], on_read: Callable[[int], None]
) -> Iterator[Read]:
    """The files that the object's inventory lists; bytes that several versions share are read once."""
    folder = root.object(ark)
    if not (root.folder / objects.ROOT_DECLARATION[0]).is_file():
        raise transient(
            f"{root.folder} is no OCFL storage root: is its disk mounted here, and is ARKLINE_STORAGE_ROOT "
            "what the workers have?"
        )
    head = objects.read_head(folder)
    yield from read_versions(head, numbers, lambda place: _read(root, ark, place, on_read))


def read_versions(
    head: objects.Inventory | None, numbers: Collection[int], read: Callable[[str], Read]
) -> Iterator[Read]:
    """The files of these versions, or of all; `read` is asked once for each path in the object."""
    known: dict[str, Read] = {}
    for number in range(1, head.number + 1 if head else 1):
        if head is None or (numbers and number not in numbers):
            continue
        for path, digest in sorted(head.versions[f"v{number}"].digests().items()):
            place = head.manifest.get(digest, ("",))[0]
            if place not in known:
                known[place] = read(place) if place else Read(0, "", problem=NOWHERE)
            yield replace(known[place], number=number, path=path)


def _read(root: Root, ark: str, place: str, on_read: Callable[[int], None]) -> Read:
    path = root.object(ark) / place
    told = 0

    def count() -> None:
        nonlocal told
        on_read(disk.CHECK_BYTES)
        told += disk.CHECK_BYTES

    try:
        size, sha512 = disk.digest(path, CheckedAttempt(count))
    except FileNotFoundError:
        return Read(0, "", problem=f"{path} is missing", place=str(path))
    except OSError as error:
        return Read(0, "", problem=f"{path} cannot be read: {error.strerror or error}", place=str(path))
    on_read(size - told)
    return Read(0, "", size, sha512, place=str(path))
