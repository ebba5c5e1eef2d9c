"""The problems in the custody of a file, with their remedies.

Rule: the inventory is checked as well as storage. Of the digests that should agree, the one that differs from
the others is at fault.
"""

from collections.abc import Iterator

from pipeline.description.premis import NAME as PREMIS
from pipeline.files import ReadBackFile
from pipeline.preservation.custody import SHA512, CustodyProblem, Download, Origin, Source, StorageRecord


def problems_of(
    source: Source,
    download: Download | None,
    stored: StorageRecord,
    current: ReadBackFile | None,
    version: int | None,
) -> Iterator[CustodyProblem]:
    """`version` is None if the reading was stopped: then storage may list a file that was not read."""
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
        f"compare inv_files with system/{PREMIS} of version {download.version}, and restore the inventory "
        "from a copy"
    )
