"""What a container declares of its own files, compared with what was in it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.fixity import OF_RECORD, READ_CHUNK, Digest, Digester, DigestMismatch
from pipeline.names import quote_name
from pipeline.outcome import StepFailed, content
from pipeline.working_storage.workspace import DownloadedFile

PROBLEMS_TOLD = 20
"""Problems after which no others are looked for: enough for the depositor to see a pattern."""

MESSAGE = 1800
"""Characters of a message that are kept, less some for its beginning."""


@dataclass(frozen=True)
class Declared:
    """A file as something in the container declares it; `where` names the place."""

    where: str
    path: str
    digests: tuple[Digest, ...] = ()
    size: int | None = None
    by: str = ""
    """The place in full, where `where` leaves out the name of the list."""


@dataclass(frozen=True)
class UnpackedContainer:
    """The depositor's files, by their path below `producer/`."""

    producer: Path
    files: Mapping[str, DownloadedFile]
    attempt: Attempt
    agreed: dict[str, Declared] = field(default_factory=dict)
    """Path -> what was declared of it with a digest, and was found to be true."""

    def text(self, path: str) -> bytes:
        return (self.producer / path).read_bytes()

    def problems(self, declared: Iterable[Declared]) -> Iterator[str]:
        """How the files differ from what is declared of them; each is read once at most."""
        for each in declared:
            self.attempt.check()
            file = self.files.get(each.path)
            if file is None:
                yield f"{each.where}: {quote_name(each.path)} is not in the container"
            elif each.size not in (None, file.size):
                yield f"{each.where}: {quote_name(each.path)} has {file.size:,} bytes, not {each.size:,}"
            else:
                differing = tuple(self._differing(each, file))
                yield from differing
                if each.digests and not differing:
                    self.agreed[each.path] = each

    def landed(self) -> tuple[DownloadedFile, ...]:
        """The files, each with the longest digest that the content itself declares of it, if it does."""
        return tuple(self._with_declared(file) for file in self.files.values())

    def _with_declared(self, file: DownloadedFile) -> DownloadedFile:
        found = self.agreed.get(file.path)
        if found is None:
            return file
        longest = max(found.digests, key=lambda digest: len(digest.value))
        place = found.by or found.where
        return file.model_copy(update={"digest": longest, "declared_by": place, "container": ""})

    def _differing(self, declared: Declared, file: DownloadedFile) -> Iterator[str]:
        others = {digest.algorithm for digest in declared.digests} - {OF_RECORD}
        digester = self._read(file, others) if others else Digester(())
        for digest in declared.digests:
            try:
                if digest.algorithm != OF_RECORD:
                    digester.check(digest, quote_name(file.path))
                elif digest.value != file.sha512:
                    yield (
                        f"{declared.where}: {quote_name(file.path)}: the {OF_RECORD} digest is "
                        f"{file.sha512}, "
                        f"but {digest.value} was declared"
                    )
            except DigestMismatch as mismatch:
                yield f"{declared.where}: {mismatch}"

    def _read(self, file: DownloadedFile, algorithms: Iterable[str]) -> Digester:
        digester = Digester(algorithms)
        with (self.producer / file.path).open("rb") as stream:
            while piece := stream.read(READ_CHUNK):
                self.attempt.check()
                digester.update(piece)
        return digester


def refuse(what: str, problems: Iterable[str]) -> None:
    """StepFailed(content) that tells the problems, as many as a message can hold, if there are any."""
    found: list[str] = []
    for problem in problems:
        found.append(problem)
        if len(found) >= PROBLEMS_TOLD:
            break
    if found:
        raise _refusal(what, found)


def _refusal(what: str, problems: Sequence[str]) -> StepFailed:
    told = f"{what} does not agree with the container; correct it and pack again"
    for count, problem in enumerate(problems):
        if len(told) + len(problem) > MESSAGE:
            return content(f"{told}; and more")
        told += f"{';' if count else ':'} {problem}"
    return content(told + ("; reading stopped there" if len(problems) >= PROBLEMS_TOLD else ""))
