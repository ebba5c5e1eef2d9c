"""The objects of a planned deposit, as its ways describe them to the judge, and as it judges them.

What is not known is absent: a size that no source stated is None, and is never guessed.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from pipeline.fixity import Digest
from pipeline.names import quote_name
from pipeline.records import Count, Record, Submission, Text

if TYPE_CHECKING:
    from pipeline.manifests.checkm import Row

NAMED = 2000
"""Maximum number of objects that one request may name."""

LISTED = 200
"""Maximum number of files listed of one object in a request; the others are counted."""

NEW_VERSION = "new_version"
"""The field of a problem that a consent to a version would solve."""


class FieldProblem(Record):
    """An error, for which the deposit or the object would be refused, or a warning."""

    message: str
    field: str | None = None
    """A field of `pipeline.tables.fields`, or NEW_VERSION."""


class ObjectFile(Record):
    """A file of a planned object."""

    name: Text
    size: Count | None = None
    """As declared."""
    digest: Digest | None = None
    """As declared."""
    found_size: Count | None = None
    """As its bytes have it, or as its source states it."""
    found_digest: Digest | None = None
    """As its bytes have it; compared if the algorithm is the one declared."""
    to_upload: bool = False
    """Whether it has yet to be uploaded."""

    @property
    def bytes(self) -> int | None:
        return self.found_size if self.size is None else self.size

    def differences(self) -> Iterator[FieldProblem]:
        """How its bytes differ from what was declared."""
        name, actual = quote_name(self.name), self.found_digest
        if self.size is not None and self.found_size not in (None, self.size):
            message = f"{name}: the source has {self.found_size:,} bytes, but {self.size:,} were declared"
            yield FieldProblem(message=message, field="size")
        if self.digest is None or actual is None or actual.algorithm != self.digest.algorithm:
            return
        if problem := self.digest.mismatch(actual.value, name):
            yield FieldProblem(message=problem, field="digest")


class NamedObject(Record):
    """An object of a planned deposit; `number`: its place in the batch, or its row in the table, from 1."""

    number: int = Field(ge=1)
    name: Text = ""
    primary_id: Text | None = None
    local_id: tuple[Text, ...] = ()
    title: Text = ""
    creator: Text = ""
    date: Text = ""
    payload: str = Field("", max_length=8192)
    """The URL, or the name of the file, that makes the object; empty for several files."""
    files: tuple[ObjectFile, ...] | None = None
    """None: not known, as of a manifest that was not read."""
    more_files: Count = 0
    """Files that are not listed."""
    more_bytes: Count = 0

    def with_files(self, files: tuple[ObjectFile, ...] | None) -> "NamedObject":
        """With these files; of many only those that are listed: the faulty ones, then the largest."""
        if files is None or len(files) <= LISTED:
            return self.model_copy(update={"files": files})
        ordered = sorted(files, key=lambda file: (not any(file.differences()), -(file.bytes or 0)))
        more = ordered[LISTED:]
        size = sum(file.bytes or 0 for file in more)
        listed = {"files": tuple(ordered[:LISTED]), "more_files": len(more), "more_bytes": size}
        return self.model_copy(update=listed)

    @property
    def file_count(self) -> int | None:
        return None if self.files is None else len(self.files) + self.more_files

    @property
    def bytes(self) -> int:
        """Bytes of the files whose size is known."""
        return sum(file.bytes or 0 for file in self.files or ()) + self.more_bytes

    @property
    def is_sized(self) -> bool:
        return self.files is not None and all(file.bytes is not None for file in self.files)


def as_named(
    submission: Submission, files: tuple[ObjectFile, ...] | None = None, name: str = ""
) -> NamedObject:
    """The one object of the submission."""
    return NamedObject(
        number=1,
        name=name,
        primary_id=submission.primary_id,
        local_id=submission.local_id,
        title=submission.erc_what,
        creator=submission.erc_who,
        date=submission.erc_when,
    ).with_files(files)


def of_row(row: "Row", number: int, payload: str, files: tuple[ObjectFile, ...] | None) -> NamedObject:
    """The object of a row of a manifest or of a table."""
    return NamedObject(
        number=number,
        name=row.name,
        primary_id=row.primary_id,
        local_id=row.local_id,
        title=row.title,
        creator=row.creator,
        date=row.date,
        payload=payload,
        files=files,
    )


class JudgedObject(Record):
    """An object of the deposit, and what it would become."""

    number: int
    name: str = ""
    title: str = ""
    creator: str = ""
    date: str = ""
    local_id: tuple[str, ...] = ()
    files: int | None = None
    """None: not known."""
    bytes: int | None = None
    """None unless the size of every file is known."""
    version_of: str | None = None
    """The ARK of the object that the repository has; None: it would be new, or the depositor may not know."""
    version: int | None = None
    """The number that the version would have."""
    errors: tuple[FieldProblem, ...] = ()
    warnings: tuple[FieldProblem, ...] = ()

    @property
    def becomes(self) -> str:
        """For people: `new`, or `version 2 of ark:/99999/fk4abc`."""
        return f"version {self.version} of {self.version_of}" if self.version_of else "new"


class Contradiction(Record):
    """An object whose identifiers name different objects."""

    number: int
    name: str
    arks: tuple[str, ...]


class Judgement(Record):
    """What the judge knows of a deposit; `errors` and `warnings` are those of the whole."""

    objects: tuple[JudgedObject, ...] = ()
    errors: tuple[FieldProblem, ...] = ()
    warnings: tuple[FieldProblem, ...] = ()
    known: dict[str, str] = Field(default_factory=dict)
    """Identifier in the deposit -> ARK."""
    contradictions: tuple[Contradiction, ...] = ()
