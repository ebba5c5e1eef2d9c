"""What is wrong with a file's custody, and what is to be done.

Rule: the inventory is judged as well as storage. Of the digests that should agree, the one that differs from
the others is at fault.
"""

from collections.abc import Iterator

from operations.custody import SHA512, Kept, Landing, Origin, Problem, Source
from pipeline.description.premis import NAME as PREMIS
from pipeline.files import ReadBackFile


def problems_of(
    source: Source, landing: Landing | None, kept: Kept, found: ReadBackFile | None, version: int | None
) -> Iterator[Problem]:
    """`version` is None while it is open whether storage lists the file."""
    if source.origin is Origin.DECLARED and landing and source.digest.startswith(SHA512):
        declared = source.digest.removeprefix(SHA512)
        if declared != landing.sha512 == kept.sha512:
            yield Problem(
                f"it landed with the sha512 {landing.sha512}, but {declared} was declared "
                f"({source.declared_by})",
                f"arkline refuses such a file, so the record of its arrival was changed: {_compare(landing)}",
            )
    if found is None and version is not None:
        yield Problem(
            f"storage lists no such file in version {version}",
            "restore the object from a copy of the storage, or give this command the workers' settings",
        )
    elif found is not None and found.sha512 is None:
        yield Problem(found.problem, "restore it from a copy of the storage, then prove it again")
    else:
        yield from _differing(landing, kept, found)


def _differing(landing: Landing | None, kept: Kept, found: ReadBackFile | None) -> Iterator[Problem]:
    landed = landing.sha512 if landing else kept.sha512
    has = found.sha512 if found else kept.sha512
    if landing and landed != kept.sha512 == has:
        yield Problem(
            f"it landed with the sha512 {landed}, but was stored with {kept.sha512}",
            f"the record of its arrival was changed: {_compare(landing)}",
        )
    elif landing and found and has == landed != kept.sha512:
        yield Problem(
            f"storage has what landed, with the sha512 {has}, but the inventory says {kept.sha512}",
            "the inventory's record was changed: restore this row of inv_files from a copy of the inventory",
        )
    elif has != kept.sha512 and found:
        also = (
            "" if landed == kept.sha512 else f"; it landed with {landed}, so that the inventory differs too"
        )
        yield Problem(
            f"storage has {found.size:,} bytes with the sha512 {has}; stored were {kept.size:,} bytes with "
            f"{kept.sha512}{also}",
            f"restore {found.place or 'it'} from a copy of the storage, then prove it again",
        )
    elif found and found.size != kept.size:
        yield Problem(
            f"it has {found.size:,} bytes, but the inventory says {kept.size:,}",
            "restore this row of inv_files from a copy of the inventory",
        )


def _compare(landing: Landing) -> str:
    return (
        f"compare inv_files with system/{PREMIS} of version {landing.version}, and restore the inventory "
        "from a copy"
    )
