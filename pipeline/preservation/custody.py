"""The custody of an object's files: their digests as declared, downloaded, stored, and read back now.

`prove` reads an object's bytes and compares them with all records of their digests. Only bytes that this call
has read count as proved.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial

from pipeline.description import premis
from pipeline.fixity import OF_RECORD, OnRead, ReadBackFile, ignore
from pipeline.inventory.base import InventoryFile, InventoryObject, InventoryVersion, Provenance
from pipeline.manifests import storage_manifest
from pipeline.names import PRODUCER
from pipeline.records import now
from pipeline.storage.base import Storage

SHA512 = f"{OF_RECORD}:"
"""The prefix of a digest of record."""


RESTORE_OBJECT = "restore the object from a copy of the storage, then check it again"


class Origin(StrEnum):
    """What is known about a file's digest at its source."""

    DECLARED = "declared"
    OF_CONTAINER = "declared for its container"
    NONE = "none declared"
    OURS = "made by arkline"
    UNKNOWN = "not recorded"


class Verdict(StrEnum):
    AGREES = "agrees"
    DIFFERS = "differs"
    MISSING = "missing"
    UNKNOWN = "not in the inventory"
    NOT_READ = "not read"


@dataclass(frozen=True, slots=True)
class Source:
    origin: Origin
    digest: str = ""
    """algorithm:value."""
    checked: bool = False
    """The digest was compared when the file, or its container, was downloaded."""
    declared_by: str = ""
    container: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Download:
    sha512: str
    at: datetime | None
    version: int
    jid: str


@dataclass(frozen=True, slots=True)
class StorageRecord:
    """The stored file according to the inventory, and the version that added its bytes."""

    sha512: str
    size: int
    version: int
    jid: str
    read_back: datetime | None
    """When that job had read the bytes back from storage."""


@dataclass(frozen=True, slots=True)
class CustodyProblem:
    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class FileCustody:
    version: int
    path: str
    source: Source
    download: Download | None
    storage: StorageRecord | None
    now: ReadBackFile | None
    verdict: Verdict
    problems: tuple[CustodyProblem, ...]


@dataclass(frozen=True)
class Custody:
    """The custody of some versions of an object."""

    versions: tuple[int, ...]
    began: datetime
    ended: datetime
    bytes_read: int
    read: bool
    """Storage was read; else the records were only compared with each other."""
    complete: bool
    """All requested versions were read."""
    agrees: bool
    """No problem was found in what was compared."""
    files: tuple[FileCustody, ...]
    description: tuple[CustodyProblem, ...] = ()
    """Damage to the files in which storage describes the object, known once all that was asked is read."""

    @property
    def problems(self) -> Iterator[CustodyProblem]:
        yield from (problem for file in self.files for problem in file.problems)
        yield from self.description


def joined(recorded: Custody, proofs: Sequence[Custody]) -> Custody:
    """The custody of the versions in `recorded`, whose records were compared, with proofs of some of them."""
    proved = {number for proof in proofs for number in proof.versions}
    unread = (file for file in recorded.files if file.version not in proved)
    files = (*(file for proof in proofs for file in proof.files), *unread)
    described = tuple(dict.fromkeys(problem for proof in proofs for problem in proof.description))
    return Custody(
        versions=recorded.versions,
        began=min((proof.began for proof in proofs), default=recorded.began),
        ended=max((proof.ended for proof in proofs), default=recorded.ended),
        bytes_read=max((proof.bytes_read for proof in proofs), default=0),  # one reading is for all versions
        read=True,
        complete=proved.issuperset(recorded.versions),
        agrees=agree(files, described),
        files=files,
        description=described,
    )


def agree(files: Iterable[FileCustody], description: Collection[CustodyProblem]) -> bool:
    """Whether no problem was found."""
    return not description and not any(file.problems for file in files)


def problems_of(
    source: Source,
    download: Download | None,
    stored: StorageRecord,
    current: ReadBackFile | None,
    version: int | None,
) -> Iterator[CustodyProblem]:
    """The problems of a file; `version` is None if reading was stopped: storage may list unread files."""
    if source.origin is Origin.DECLARED and download and source.digest.startswith(SHA512):
        declared = source.digest.removeprefix(SHA512)
        if declared != download.sha512 == stored.sha512:
            yield CustodyProblem(
                f"it was downloaded with the sha512 {download.sha512}, but {declared} was declared "
                f"({source.declared_by})",
                "arkline refuses such a file, so the record of the download was changed: "
                f"{_compare(download)}",
            )
    if current is None and version is not None:
        yield CustodyProblem(
            f"storage lists no such file in version {version}",
            "restore the object from a copy of the storage, or use the storage settings of the workers",
        )
    elif current is not None and current.sha512 is None:
        yield CustodyProblem(
            current.problem, "restore the file from a copy of the storage, then prove it again"
        )
    else:
        yield from _differences(download, stored, current)


def _differences(
    download: Download | None, stored: StorageRecord, current: ReadBackFile | None
) -> Iterator[CustodyProblem]:
    downloaded = download.sha512 if download else stored.sha512
    actual = current.sha512 if current else stored.sha512
    if download and downloaded != stored.sha512 == actual:
        yield CustodyProblem(
            f"it was downloaded with the sha512 {downloaded}, but stored with {stored.sha512}",
            f"the record of the download was changed: {_compare(download)}",
        )
    elif download and current and actual == downloaded != stored.sha512:
        yield CustodyProblem(
            f"storage has what was downloaded, with the sha512 {actual}, but the inventory says "
            f"{stored.sha512}",
            "the inventory was changed: restore this row of inv_files from a copy of the inventory",
        )
    elif actual != stored.sha512 and current:
        also = (
            ""
            if downloaded == stored.sha512
            else f"; it was downloaded with {downloaded}, so the inventory is wrong as well"
        )
        yield CustodyProblem(
            f"storage has {current.size:,} bytes with the sha512 {actual}; {stored.size:,} bytes with "
            f"{stored.sha512} were stored{also}",
            f"restore {current.place or 'the file'} from a copy of the storage, then prove it again",
        )
    elif current and current.size != stored.size:
        yield CustodyProblem(
            f"it has {current.size:,} bytes, but the inventory says {stored.size:,}",
            "restore this row of inv_files from a copy of the inventory",
        )


def _compare(download: Download) -> str:
    return (
        f"compare inv_files with system/{premis.NAME} of version {download.version}, and restore the "
        "inventory "
        "from a copy"
    )


def size_of(known: InventoryObject, numbers: Collection[int]) -> int:
    """The bytes that `prove` reads for these versions; shared files are read once."""
    files = (file for version in known.versions if version.number in numbers for file in version.files)
    return sum({file.digest: file.size for file in files}.values())


class _Stopped(Exception):
    """The caller asked to stop reading; an AttemptOver of storage or of a callback is its own end."""


@dataclass(frozen=True)
class Reading:
    """How storage is read for a proof, with callbacks for progress."""

    on_read: OnRead = ignore
    """Receives the number of bytes of every chunk read."""
    stopped: Callable[[], bool] = lambda: False
    """Once true, reading ends, and the result covers what has been read (`complete` is false)."""
    over: Callable[[], bool] = lambda: False
    """Once true, reading ends with the file at hand."""
    already: Mapping[str, ReadBackFile] = field(default_factory=dict)
    """Place -> result of an interrupted reading: those bytes are not read again."""
    on_file: Callable[[ReadBackFile], None] = lambda _: None
    """Receives the result of every file."""
    description: bool = True
    """Whether the files in which storage describes the object are read, too."""


WHOLE = Reading()


def prove(
    known: InventoryObject, numbers: Collection[int], storage: Storage | None, reading: Reading = WHOLE
) -> Custody:
    """Compare the records of these versions with each other and, given `storage`, with the stored bytes."""
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
                if reading.over():
                    complete = False
                    break
        except _Stopped:
            complete = False
    described: tuple[CustodyProblem, ...] = ()
    if storage is not None and chosen and complete and reading.description:
        described = _described(known, storage)
    chain = _Chain(known)
    files = tuple(file for version in chosen for file in _files(chain, version, read, complete))
    return Custody(
        versions=tuple(version.number for version in chosen),
        began=began,
        ended=now(),
        bytes_read=total,
        read=storage is not None,
        complete=complete,
        agrees=agree(files, described),
        files=files,
        description=described,
    )


def _described(known: InventoryObject, storage: Storage) -> tuple[CustodyProblem, ...]:
    """Damage to the description that is there twice: a reader may meet a writer in these files."""
    read = partial(storage.problems_of, known.ark, known.versions[-1].storage_url)
    return tuple(CustodyProblem(text, RESTORE_OBJECT) for text in read() and read())


class _Chain:
    """The origin of a file's bytes, whichever version added them."""

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
    """The version's files in the inventory's order, then the files that only storage has."""
    listed = set()
    for file in version.files:
        listed.add(file.path)
        by, provenance = chain.provenance_of(version, file) or (version, None)
        stored = chain.stored(version, file)
        source = _source(file, provenance)
        download = Download(provenance.sha512, by.downloaded, by.number, by.jid) if provenance else None
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
        listed_in = f"system/{storage_manifest.NAME} of that version"
        yield FileCustody(
            version=number,
            path=path,
            source=Source(Origin.UNKNOWN),
            download=None,
            storage=None,
            now=read[number, path],
            verdict=Verdict.UNKNOWN,
            problems=(
                CustodyProblem(what, f"compare inv_files with {listed_in}, and restore the inventory"),
            ),
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


def _verdict(problems: tuple[CustodyProblem, ...], current: ReadBackFile | None, complete: bool) -> Verdict:
    if current is None:
        return Verdict.MISSING if complete else Verdict.DIFFERS if problems else Verdict.NOT_READ
    if current.sha512 is None:
        return Verdict.MISSING
    return Verdict.DIFFERS if problems else Verdict.AGREES
