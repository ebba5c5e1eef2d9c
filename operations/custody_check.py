"""Proving an object's custody: its bytes are read, and compared with every record there is of them.

Nothing is taken for proved that was not read in this call.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator

from operations.custody import (
    SHA512,
    Custody,
    FileCustody,
    Kept,
    Landing,
    Now,
    Origin,
    Problem,
    Source,
    Verdict,
)
from operations.custody_problems import problems_of
from pipeline.description.storage_manifest import NAME as MANIFEST
from pipeline.files import ReadBackFile
from pipeline.inventory.base import InventoryFile, InventoryObject, InventoryVersion, Provenance
from pipeline.names import PRODUCER
from pipeline.records import now
from pipeline.storage.base import Storage


def size_of(found: InventoryObject, numbers: Collection[int]) -> int:
    """Bytes that proving these versions reads: those that are shared are read once."""
    files = (file for version in found.versions if version.number in numbers for file in version.files)
    return sum({file.digest: file.size for file in files}.values())


def prove(
    found: InventoryObject,
    numbers: Collection[int],
    storage: Storage | None,
    seen: Callable[[int], None] = lambda _: None,
) -> Custody:
    """Compare the records of these versions with each other and, given `storage`, with what it has now.

    Ctrl-C ends the reading, not the answer: it then tells what was read so far.
    """
    began, total = now(), 0
    held: dict[tuple[int, str], ReadBackFile] = {}
    complete = storage is not None

    def count(size: int) -> None:
        nonlocal total
        total += size
        seen(size)

    chosen = [version for version in found.versions if version.number in numbers]
    if storage is not None and chosen:
        try:
            for each in storage.read_back(found.ark, chosen[-1].storage_url, numbers, count):
                held[each.number, each.path] = each
        except KeyboardInterrupt:
            complete = False
    chain = _Chain(found)
    files = tuple(file for version in chosen for file in _files(chain, version, held, complete))
    return Custody(
        versions=tuple(version.number for version in chosen),
        began=began,
        ended=now(),
        bytes_read=total,
        read=storage is not None,
        complete=complete,
        agrees=not any(file.problems for file in files),
        files=files,
    )


class _Chain:
    """Where each file's bytes came from, whichever version brought them."""

    def __init__(self, found: InventoryObject) -> None:
        self._arrived: defaultdict[str, list[tuple[InventoryVersion, InventoryFile]]] = defaultdict(list)
        self._brought: defaultdict[str, list[InventoryVersion]] = defaultdict(list)
        for version in found.versions:
            for file in version.files:
                if file.provenance is not None:
                    self._arrived[file.digest].append((version, file))
                if file.added:
                    self._brought[file.digest].append(version)

    def provenance_of(
        self, version: InventoryVersion, file: InventoryFile
    ) -> tuple[InventoryVersion, Provenance] | None:
        """With this version, or with the last one before it that these bytes came with."""
        if file.provenance is not None:
            return version, file.provenance
        before = [pair for pair in self._arrived[file.digest] if pair[0].number < version.number]
        same = [pair for pair in before if pair[1].path == file.path] or before
        if not same or same[-1][1].provenance is None or not file.path.startswith(PRODUCER):
            return None
        return same[-1][0], same[-1][1].provenance

    def kept(self, version: InventoryVersion, file: InventoryFile) -> Kept:
        before = [each for each in self._brought[file.digest] if each.number <= version.number]
        brought = before[-1] if before else version
        return Kept(
            file.digest.removeprefix(SHA512), file.size, brought.number, brought.jid, brought.verified
        )


def _files(
    chain: _Chain, version: InventoryVersion, held: dict[tuple[int, str], ReadBackFile], complete: bool
) -> Iterator[FileCustody]:
    """The version's files in the inventory's order, then those that only storage has."""
    listed = set()
    for file in version.files:
        listed.add(file.path)
        came = chain.provenance_of(version, file)
        kept = chain.kept(version, file)
        source = _source(file, came[1] if came else None)
        landing = Landing(came[1].sha512, came[0].downloaded, came[0].number, came[0].jid) if came else None
        found = held.get((version.number, file.path))
        problems = tuple(problems_of(source, landing, kept, found, version.number if complete else None))
        yield FileCustody(
            version=version.number,
            path=file.path,
            source=source,
            landing=landing,
            storage=kept,
            now=_now(found) if found else None,
            verdict=_verdict(problems, found, complete),
            problems=problems,
        )
    for number, path in sorted(key for key in held if key[0] == version.number and key[1] not in listed):
        what = f"storage has it in version {number}, but the inventory does not"
        remedy = f"compare inv_files with system/{MANIFEST} of that version, and restore the inventory"
        yield FileCustody(
            version=number,
            path=path,
            source=Source(Origin.UNKNOWN),
            landing=None,
            storage=None,
            now=_now(held[number, path]),
            verdict=Verdict.UNKNOWN,
            problems=(Problem(what, remedy),),
        )


def _source(file: InventoryFile, arrival: Provenance | None) -> Source:
    if arrival is None:
        ours = not file.path.startswith(PRODUCER)
        return Source(Origin.OURS if ours else Origin.UNKNOWN)
    if not arrival.digest:
        return Source(Origin.UNKNOWN if arrival.digest is None else Origin.NONE, url=arrival.url)
    origin = Origin.OF_CONTAINER if arrival.container else Origin.DECLARED
    return Source(origin, arrival.digest, True, arrival.declared_by, arrival.container, arrival.url)


def _now(found: ReadBackFile) -> Now:
    return Now(found.at, found.size, found.sha512, found.problem, found.place)


def _verdict(problems: tuple[Problem, ...], found: ReadBackFile | None, complete: bool) -> Verdict:
    if found is None:
        return Verdict.MISSING if complete else Verdict.DIFFERS if problems else Verdict.NOT_READ
    if found.sha512 is None:
        return Verdict.MISSING
    return Verdict.DIFFERS if problems else Verdict.AGREES
