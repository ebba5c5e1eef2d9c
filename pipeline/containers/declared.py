"""Digests and sizes that a container declares for its files, in lists or a manifest, and the comparison."""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Protocol

from pipeline.attempt import Attempt, WorkCounter
from pipeline.fixity import OF_RECORD, Digest, digest_file
from pipeline.manifests import lines
from pipeline.manifests.checkm import ManifestProfile, Row, parse_rows
from pipeline.names import COMPOSED_OTHERWISE, quote_name
from pipeline.outcome import content
from pipeline.working_storage.workspace import DownloadedFile

PROBLEMS_REPORTED = 20
"""Problems after which checking stops: enough for the depositor to see a pattern."""

MESSAGE_LIMIT = 1800
"""Characters of a stored message, less a margin for its beginning."""


class UnpackedFile(Protocol):
    """A file as it was unpacked."""

    @property
    def size(self) -> int: ...
    @property
    def sha512(self) -> str: ...


@dataclass(frozen=True)
class Declared:
    """A file as a list in the container declares it; `where` is the place in the list."""

    where: str
    path: str
    digests: tuple[Digest, ...] = ()
    size: int | None = None
    by: str = ""
    """The place with the name of the list, if `where` lacks the name."""


@dataclass(frozen=True)
class ConfirmedDigest:
    """A digest that a list in the container declares and the file matches."""

    path: str
    digest: Digest
    declared_by: str

    def of(self, file: DownloadedFile) -> DownloadedFile:
        """The file, with this digest as its declared one."""
        return file.model_copy(
            update={"digest": self.digest, "declared_by": self.declared_by, "container": ""}
        )


@dataclass(frozen=True)
class UnpackedContainer:
    """The depositor's files, by their path below `producer/`."""

    producer: Path
    files: Mapping[str, UnpackedFile]
    attempt: Attempt
    confirmed: dict[str, Declared] = field(default_factory=dict)
    """Path -> a declaration with digests that the file matches."""
    remarks: list[str] = field(default_factory=list)
    """Notes for the depositor to check, although nothing is wrong."""
    counter: WorkCounter = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counter", WorkCounter(self.attempt))

    def problems(self, declared: Iterable[Declared]) -> Iterator[str]:
        """How the files differ from their declarations; a file is read at most once."""
        for entry in declared:
            self.attempt.check()
            file = self.files.get(entry.path)
            if file is None:
                yield f"{entry.where}: {quote_name(entry.path)} {self._missing(entry.path)}"
            elif entry.size not in (None, file.size):
                yield f"{entry.where}: {quote_name(entry.path)} has {file.size:,} bytes, not {entry.size:,}"
            else:
                differences = tuple(self._differences(entry, file))
                yield from differences
                if entry.digests and not differences:
                    self.confirmed[entry.path] = entry

    @cached_property
    def _composed(self) -> dict[str, str]:
        return {unicodedata.normalize("NFC", path): path for path in self.files}

    def composed_otherwise(self, path: str) -> str:
        """The file whose name differs only in Unicode composition; empty if there is none."""
        other = self._composed.get(unicodedata.normalize("NFC", path), path)
        return "" if other == path else other

    def _missing(self, path: str) -> str:
        if other := self.composed_otherwise(path):
            return f"{COMPOSED_OTHERWISE} from {quote_name(other)}, which is among the files"
        return "is not among the files"

    def confirmed_digests(self) -> Iterator[ConfirmedDigest]:
        """The longest digest that the container itself declares for a file, for every file with one."""
        for path, entry in self.confirmed.items():
            longest = max(entry.digests, key=lambda digest: len(digest.value))
            yield ConfirmedDigest(path, longest, entry.by or entry.where)

    def _differences(self, declared: Declared, file: UnpackedFile) -> Iterator[str]:
        values = {OF_RECORD: file.sha512}
        others = {digest.algorithm for digest in declared.digests} - values.keys()
        if others:
            digester = digest_file(self.producer / declared.path, others, self.counter.add)
            values |= {name: digester.value(name) for name in others}
        for digest in declared.digests:
            if mismatch := digest.mismatch(values[digest.algorithm], quote_name(declared.path)):
                yield f"{declared.where}: {mismatch}"


def refuse(what: str, problems: Iterable[str]) -> None:
    """Raise StepFailed(content) with as many of the problems as a message can hold, if there are any."""
    reported = list(islice(problems, PROBLEMS_REPORTED))
    text = f"{what} does not match the files; correct it, and deposit again"
    for count, problem in enumerate(reported):
        if len(text) + len(problem) > MESSAGE_LIMIT:
            raise content(f"{text}; and more")
        text += f"{';' if count else ':'} {problem}"
    if reported:
        raise content(text + ("; checking stopped there" if len(reported) >= PROBLEMS_REPORTED else ""))


NAME = "mrt-manifest.txt"


def check_manifest(unpacked: UnpackedContainer) -> str | None:
    """A sentence if the manifest is correct, None without a manifest; StepFailed(content) if incorrect."""
    if NAME not in unpacked.files:
        return None
    title = f"producer/{NAME}"
    lines.check_size(unpacked.producer / NAME, title)
    data, most = (unpacked.producer / NAME).read_bytes(), max(lines.LIST_ENTRIES, len(unpacked.files))
    # Unpacking has refused clashing names, by the rules of the collection.
    rows = parse_rows(data, title, ManifestProfile.OBJECT, case_fold=False, most=most)
    refuse(title, _problems(unpacked, rows))
    return f"{title} lists the container's {len(rows):,} other files, with their sizes and digests"


def _problems(unpacked: UnpackedContainer, rows: tuple[Row, ...]) -> Iterator[str]:
    yield from unpacked.problems(
        Declared(
            f"line {row.line}",
            row.name,
            (row.digest,) if row.digest else (),
            row.size,
            by=f"{NAME} line {row.line}",
        )
        for row in rows
    )
    listed = {row.name for row in rows} | {NAME}
    composed = {unpacked.composed_otherwise(name) for name in listed - unpacked.files.keys()}
    for path in sorted(unpacked.files):
        if path not in listed and path not in composed:
            yield f"{quote_name(path)} is in the container, but not in the manifest"
