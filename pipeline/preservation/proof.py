"""Proves the custody of an object: reads its bytes and compares them with all records of their digests.

Only what was read in this call counts as proved.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from pipeline.description.storage_manifest import NAME as MANIFEST
from pipeline.files import ReadBackFile
from pipeline.fixity import OnRead, ignore
from pipeline.inventory.base import InventoryFile, InventoryObject, InventoryVersion, Provenance
from pipeline.names import PRODUCER
from pipeline.preservation.custody import (
    SHA512,
    Custody,
    CustodyProblem,
    Download,
    FileCustody,
    Origin,
    Source,
    StorageRecord,
    Verdict,
)
from pipeline.preservation.problems import problems_of
from pipeline.records import now
from pipeline.storage.base import Storage


def size_of(known: InventoryObject, numbers: Collection[int]) -> int:
    """Bytes that `prove` reads for these versions; shared bytes are read once."""
    files = (file for version in known.versions if version.number in numbers for file in version.files)
    return sum({file.digest: file.size for file in files}.values())


class _Stopped(Exception):
    """The caller asked to stop reading."""


@dataclass(frozen=True)
class Reading:
    """How storage is read for a proof, and who learns of it."""

    on_read: OnRead = ignore
    """Gets the number of bytes of every piece that was read."""
    stopped: Callable[[], bool] = lambda: False
    """Once true, the reading ends, and the result covers what was read so far (`complete` is false)."""
    already: Mapping[str, ReadBackFile] = field(default_factory=dict)
    """Results of an interrupted reading by their place: those bytes are not read again."""
    on_file: Callable[[ReadBackFile], None] = lambda _: None
    """Gets the result of every file."""


WHOLE = Reading()


def prove(
    known: InventoryObject, numbers: Collection[int], storage: Storage | None, reading: Reading = WHOLE
) -> Custody:
    """Compare the records of these versions with each other and, given `storage`, with its bytes."""
    began, total = now(), 0
    read: dict[tuple[int, str], ReadBackFile] = {}
    complete = storage is not None

    def count(size: int) -> None:
        nonlocal total
        total += size
        reading.on_read(size)
        if reading.stopped():
            raise _Stopped

    chosen = [version for version in known.versions if version.number in numbers]
    if storage is not None and chosen:
        try:
            url = chosen[-1].storage_url
            for file in storage.read_back(known.ark, url, numbers, count, reading.already):
                read[file.number, file.path] = file
                reading.on_file(file)
        except _Stopped:
            complete = False
    chain = _Chain(known)
    files = tuple(file for version in chosen for file in _files(chain, version, read, complete))
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
    """Where the bytes of a file came from, whichever version added them."""

    def __init__(self, known: InventoryObject) -> None:
        self._downloaded: defaultdict[str, list[tuple[InventoryVersion, InventoryFile]]] = defaultdict(list)
        self._added: defaultdict[str, list[InventoryVersion]] = defaultdict(list)
        for version in known.versions:
            for file in version.files:
                if file.provenance is not None:
                    self._downloaded[file.digest].append((version, file))
                if file.added:
                    self._added[file.digest].append(version)

    def provenance_of(
        self, version: InventoryVersion, file: InventoryFile
    ) -> tuple[InventoryVersion, Provenance] | None:
        """The provenance in this version, or in the last earlier version with the same bytes."""
        if file.provenance is not None:
            return version, file.provenance
        before = [pair for pair in self._downloaded[file.digest] if pair[0].number < version.number]
        same = [pair for pair in before if pair[1].path == file.path] or before
        if not same or same[-1][1].provenance is None or not file.path.startswith(PRODUCER):
            return None
        return same[-1][0], same[-1][1].provenance

    def stored(self, version: InventoryVersion, file: InventoryFile) -> StorageRecord:
        candidates = [v for v in self._added[file.digest] if v.number <= version.number]
        added_by = candidates[-1] if candidates else version
        return StorageRecord(
            file.digest.removeprefix(SHA512), file.size, added_by.number, added_by.jid, added_by.verified
        )


def _files(
    chain: _Chain, version: InventoryVersion, read: dict[tuple[int, str], ReadBackFile], complete: bool
) -> Iterator[FileCustody]:
    """The version's files in the inventory's order, then those that only storage has."""
    listed = set()
    for file in version.files:
        listed.add(file.path)
        origin = chain.provenance_of(version, file)
        stored = chain.stored(version, file)
        source = _source(file, origin[1] if origin else None)
        download = _download(*origin) if origin else None
        current = read.get((version.number, file.path))
        problems = tuple(problems_of(source, download, stored, current, version.number if complete else None))
        yield FileCustody(
            version=version.number,
            path=file.path,
            source=source,
            download=download,
            storage=stored,
            now=current,
            verdict=_verdict(problems, current, complete),
            problems=problems,
        )
    for number, path in sorted(key for key in read if key[0] == version.number and key[1] not in listed):
        what = f"storage has this file in version {number}, but the inventory does not"
        remedy = f"compare inv_files with system/{MANIFEST} of that version, and restore the inventory"
        yield FileCustody(
            version=number,
            path=path,
            source=Source(Origin.UNKNOWN),
            download=None,
            storage=None,
            now=read[number, path],
            verdict=Verdict.UNKNOWN,
            problems=(CustodyProblem(what, remedy),),
        )


def _source(file: InventoryFile, provenance: Provenance | None) -> Source:
    if provenance is None:
        ours = not file.path.startswith(PRODUCER)
        return Source(Origin.OURS if ours else Origin.UNKNOWN)
    if not provenance.digest:
        return Source(Origin.UNKNOWN if provenance.digest is None else Origin.NONE, url=provenance.url)
    origin = Origin.OF_CONTAINER if provenance.container else Origin.DECLARED
    return Source(
        origin, provenance.digest, True, provenance.declared_by, provenance.container, provenance.url
    )


def _download(version: InventoryVersion, provenance: Provenance) -> Download:
    return Download(provenance.sha512, version.downloaded, version.number, version.jid)


def _verdict(problems: tuple[CustodyProblem, ...], current: ReadBackFile | None, complete: bool) -> Verdict:
    if current is None:
        return Verdict.MISSING if complete else Verdict.DIFFERS if problems else Verdict.NOT_READ
    if current.sha512 is None:
        return Verdict.MISSING
    return Verdict.DIFFERS if problems else Verdict.AGREES
