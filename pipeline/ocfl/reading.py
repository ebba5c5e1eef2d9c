"""Reading an object of the storage root back, every byte of it; nothing here writes or takes a lock."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from pipeline.ocfl import disk, objects
from pipeline.ocfl.writer import Root
from pipeline.outcome import transient


@dataclass(frozen=True)
class Read:
    """A file of a version as its bytes are; size and sha512 are None if there is a `problem`."""

    number: int
    path: str
    size: int | None = None
    sha512: str | None = None
    problem: str = ""


def read_back(root: Root, ark: str, numbers: Collection[int], seen: Callable[[int], None]) -> Iterator[Read]:
    """The files that the object's inventory lists; bytes that several versions share are read once."""
    folder = root.object(ark)
    if not (root.folder / objects.ROOT_DECLARATION[0]).is_file():
        raise transient(
            f"{root.folder} is no OCFL storage root: is its disk mounted here, and is ARKLINE_STORAGE_ROOT "
            "what the workers have?"
        )
    head = objects.read_head(folder)
    known: dict[str, Read] = {}
    for number in range(1, head.number + 1 if head else 1):
        if head is None or (numbers and number not in numbers):
            continue
        for path, digest in sorted(head.versions[f"v{number}"].digests().items()):
            place = head.manifest.get(digest, ("",))[0]
            if place not in known:
                known[place] = _read(root, ark, place, seen)
            found = known[place]
            yield Read(number, path, found.size, found.sha512, found.problem)


def _read(root: Root, ark: str, place: str, seen: Callable[[int], None]) -> Read:
    if not place:
        return Read(0, "", problem=f"{objects.INVENTORY} does not say where its bytes are")
    path = root.object(ark) / place
    told = 0

    def look() -> None:
        nonlocal told
        seen(disk.PIECE)
        told += disk.PIECE

    try:
        size, sha512 = disk.digest(path, look)
    except FileNotFoundError:
        return Read(0, "", problem=f"{path} is missing")
    except OSError as error:
        return Read(0, "", problem=f"{path} cannot be read: {error.strerror or error}")
    seen(size - told)
    return Read(0, "", size, sha512)
