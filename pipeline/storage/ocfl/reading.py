"""Reading an OCFL object back, from a disk or from a bucket; nothing here writes or takes a lock."""

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Protocol

from pipeline.attempt import Attempt
from pipeline.files import ContentFile, ReadBackFile, StoredFile, StoredVersion
from pipeline.outcome import StepFailed, system
from pipeline.records import now
from pipeline.storage.ocfl import objects
from pipeline.storage.rules import describe_mismatch

NOT_IN_MANIFEST = f"{objects.INVENTORY} has no content path for this file"


class ObjectFiles(Protocol):
    """The files of one OCFL object by their path in it, on a disk or in a bucket."""

    def location(self, path: str) -> str:
        """The place of the file, for messages."""

    def read(self, path: str) -> bytes | None:
        """A small file; None if there is no such file."""

    def size(self, path: str) -> int | None:
        """Bytes; None if there is no such file."""

    def digest(self, path: str, on_read: Callable[[int], None]) -> tuple[int, str] | None:
        """Size and sha512 of the bytes as they are read now; None if there is no such file."""


def read_version(stored: ObjectFiles, name: str) -> objects.Inventory:
    """The inventory in the version's own folder, checked against its sidecar; neither ever changes."""
    path = f"{name}/{objects.INVENTORY}"
    data, sidecar = stored.read(path), stored.read(f"{name}/{objects.SIDECAR}")
    if data is None or sidecar is None:
        raise system(f"{stored.location(path)} or its sidecar is missing")
    return objects.parse_checked(data, sidecar, stored.location(path))


def read_file(
    stored: ObjectFiles, head: objects.Inventory | None, path: str, number: int | None
) -> bytes | None:
    """A file of the version, or of the latest; None if there is no such version or file."""
    version = head.versions.get(head.head if number is None else f"v{number}") if head else None
    sha512 = version.digests().get(path) if version else None
    if head is None or sha512 is None:
        return None
    content_path = head.manifest[sha512][0]
    data = stored.read(content_path)
    if data is None:
        raise damaged(stored, content_path, "it is missing")
    if hashlib.sha512(data).hexdigest() != sha512:
        raise damaged(stored, content_path, f"its sha512 is not {sha512}")
    return data


def read_back(
    stored: ObjectFiles,
    head: objects.Inventory | None,
    numbers: Collection[int],
    on_read: Callable[[int], None],
) -> Iterator[ReadBackFile]:
    """The files of these versions, or of all; bytes that several files share are read once."""
    results: dict[str, ReadBackFile] = {}
    for number in range(1, head.number + 1 if head else 1):
        if head is None or (numbers and number not in numbers):
            continue
        for path, sha512 in sorted(head.versions[f"v{number}"].digests().items()):
            content_path = head.manifest.get(sha512, ("",))[0]
            if content_path not in results:
                results[content_path] = _read_back_file(stored, content_path, on_read)
            yield replace(results[content_path], number=number, path=path)


def _read_back_file(stored: ObjectFiles, content_path: str, on_read: Callable[[int], None]) -> ReadBackFile:
    if not content_path:
        return ReadBackFile(0, "", now(), problem=NOT_IN_MANIFEST)
    location = stored.location(content_path)
    try:
        actual = stored.digest(content_path, on_read)
    except OSError as error:
        problem = f"{location} cannot be read: {error.strerror or error}"
        return ReadBackFile(0, "", now(), problem=problem, place=location)
    if actual is None:
        return ReadBackFile(0, "", now(), problem=f"{location} is missing", place=location)
    return ReadBackFile(0, "", now(), *actual, place=location)


def check_stored(version: StoredVersion, own: objects.Inventory, head: objects.Inventory | None) -> None:
    """StepFailed unless the version's own inventory and the object's inventory agree with what was stored."""
    name = f"v{version.number}"
    if head is None or name not in own.versions or head.versions.get(name) != own.versions[name]:
        raise system(
            f"{version.url} differs from what the {objects.INVENTORY} of {version.ark} says of {name}"
        )
    if own.versions[name].digests() != {file.path: file.sha512 for file in version.files}:
        raise system(f"{version.url} does not have the files that were stored for {version.jid}")


def verify_file(
    stored: ObjectFiles, inventory: objects.Inventory, file: StoredFile, attempt: Attempt
) -> None:
    """Read a file that the version added; of the other files only the size is compared."""
    content_path = inventory.manifest[file.sha512][0]
    if file.added:
        compare_bytes(stored, content_path, file, attempt)
        return
    size = stored.size(content_path)
    if size != file.size:
        problem = "it is missing" if size is None else f"it has {size} bytes, not {file.size}"
        raise damaged(stored, content_path, problem)


def compare_bytes(
    stored: ObjectFiles, content_path: str, file: ContentFile | StoredFile, attempt: Attempt
) -> None:
    """StepFailed unless the stored bytes have the file's size and digest."""
    actual = stored.digest(content_path, lambda _: attempt.check())
    if actual != (file.size, file.sha512):
        raise damaged(stored, content_path, describe_mismatch(file, actual) if actual else "it is missing")


def describe(stored: ObjectFiles, inventory: objects.Inventory, number: int, url: str) -> StoredVersion:
    """A version of the inventory; `url` is where the version is."""
    name = f"v{number}"
    version = inventory.versions[name]
    files = []
    for path, sha512 in sorted(version.digests().items()):
        content_path = inventory.manifest[sha512][0]
        size = stored.size(content_path)
        if size is None:
            raise damaged(stored, content_path, "it is missing")
        files.append(StoredFile(path, size, sha512, added=content_path.startswith(f"{name}/")))
    return StoredVersion(
        ark=inventory.id,
        number=number,
        jid=version.jid or "",
        created=version.created,
        files=tuple(files),
        url=url,
    )


def damaged(stored: ObjectFiles, path: str, problem: str) -> StepFailed:
    return system(f"{stored.location(path)} is damaged: {problem}; restore it, then resume the job")
