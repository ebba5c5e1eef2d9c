"""Files before and after storage, as values, and their digests, computed while the bytes stream past."""

import hashlib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, model_validator

from pipeline.causes import FailureCause
from pipeline.errors import ArklineError, UsageRefused

OF_RECORD = "sha512"
"""The digest that arkline computes and keeps for every file: OCFL 1.1 recommends it for content."""

LARGEST_FILE = 1 << 53
"""Bytes: no file has more, and every JSON reader reads such a number exactly (RFC 8259, section 6)."""

READ_CHUNK = 1 << 20
"""Bytes read at a time; larger chunks were no faster when measured."""

HEX_LENGTH = {
    "adler32": 8,
    "crc32": 8,
    "md5": 32,
    "sha1": 40,
    "sha224": 56,
    "sha256": 64,
    "sha384": 96,
    "sha512": 128,
    "sha3_224": 56,
    "sha3_256": 64,
    "sha3_384": 96,
    "sha3_512": 128,
    "blake2b": 128,
    "blake2s": 64,
}
"""The fixed-length digests that hashlib has on every host, and zlib's checksums."""

_PLAIN = {name.replace("_", ""): name for name in HEX_LENGTH} | {
    "blake2b512": "blake2b",
    "blake2s256": "blake2s",
}
"""A name without its dashes -> the canonical name."""


class UnknownAlgorithm(UsageRefused, ValueError):
    """No digest algorithm has this name."""


class DigestMismatch(ArklineError):
    """The bytes do not have the declared digest or size."""

    def __init__(self, message: str, cause: FailureCause | None = None) -> None:
        super().__init__(message)
        self.cause = cause


@lru_cache(maxsize=64)
def algorithm(name: str) -> str:
    """The canonical name: `SHA-256`, `sha256` and `Sha_256` are the same."""
    plain = name.strip().lower().replace("-", "").replace("_", "")
    if plain not in _PLAIN:
        known = ", ".join(HEX_LENGTH)
        raise UnknownAlgorithm(f"digest algorithm '{name}' is not known; use one of {known}")
    return _PLAIN[plain]


class Digest(BaseModel):
    """A digest value in lower-case hexadecimal, with its algorithm's canonical name."""

    model_config = ConfigDict(frozen=True)
    algorithm: Annotated[str, AfterValidator(algorithm)]
    value: Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)]

    @model_validator(mode="after")
    def _is_hex(self) -> "Digest":
        length = HEX_LENGTH[self.algorithm]
        if len(self.value) != length or self.value.strip("0123456789abcdef"):
            raise ValueError(f"'{self.value}' is not a {self.algorithm} value ({length} hexadecimal digits)")
        return self

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.value}"

    def mismatch(self, actual: str, name: str) -> str:
        """How the `actual` value of `name` differs from this declared value; empty if they are equal."""
        if actual == self.value:
            return ""
        return f"{name}: the {self.algorithm} digest is {actual}, but {self.value} was declared"

    def arrived_otherwise(self, actual: str, name: str) -> str:
        """Like `mismatch`, of an uploaded file, for its depositor."""
        declared, received = self.value, actual
        if declared[:8] != received[:8]:
            declared, received = f"{declared[:8]}...", f"{received[:8]}..."
        algorithm = self.algorithm.upper().replace("_", "-")
        return (
            f"{name} arrived with another {algorithm} than you declared. You declared {declared}, we "
            f"received {received}. Either the digest that you declared is wrong, or the file changed."
        )


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


class _Checksum:
    """A zlib checksum with hashlib's interface."""

    def __init__(self, function_name: str) -> None:
        self._step = getattr(zlib, function_name)
        self._value = self._step(b"")

    def update(self, data: bytes, /) -> None:
        self._value = self._step(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def _new_hash(algorithm: str) -> _Hash:
    if algorithm in ("adler32", "crc32"):
        return _Checksum(algorithm)
    return hashlib.new(algorithm, usedforsecurity=False)


class Digester:
    """Computes several digests and the size in bytes of one stream in one pass."""

    def __init__(self, algorithms: Iterable[str] = (OF_RECORD,)) -> None:
        self._hashes = {name: _new_hash(name) for name in map(algorithm, algorithms)}
        self.size = 0

    def update(self, data: bytes) -> None:
        self.size += len(data)
        for digest in self._hashes.values():
            digest.update(data)

    def value(self, name: str = OF_RECORD) -> str:
        return self._hashes[algorithm(name)].hexdigest()

    def check(self, declared: Digest, name: str) -> None:
        """Raise DigestMismatch, with `name`, unless the stream has the declared digest."""
        if mismatch := declared.mismatch(self.value(declared.algorithm), name):
            raise DigestMismatch(mismatch)


OnRead = Callable[[int], None]
"""Receives the number of bytes of every chunk read."""


def ignore(size: int) -> None:
    """An OnRead for callers that count nothing."""


def size_and_sha512(chunks: Iterable[bytes], on_read: OnRead) -> tuple[int, str]:
    """Size in bytes and sha512 of a stream."""
    digester = Digester()
    for chunk in chunks:
        on_read(len(chunk))
        digester.update(chunk)
    return digester.size, digester.value()


def digest_file(path: Path, algorithms: Iterable[str] = (OF_RECORD,), on_read: OnRead = ignore) -> Digester:
    digester = Digester(algorithms)
    with path.open("rb") as stream:
        while chunk := stream.read(READ_CHUNK):
            on_read(len(chunk))
            digester.update(chunk)
    return digester


@dataclass(frozen=True)
class ContentFile:
    """One file of a version: its logical path in the object (`producer/a.jpg`, `system/mrt-erc.txt`)."""

    path: str
    source: Path
    """The file's path in working storage."""
    size: int
    sha512: str
    mime_type: str = ""
    data: bytes | None = field(default=None, repr=False)
    """The bytes of a small file that arkline composes; such a file is not at `source` yet."""


@dataclass(frozen=True)
class StoredFile:
    path: str
    size: int
    sha512: str
    added: bool
    """True if this version added the bytes; False if an earlier version has them."""


@dataclass(frozen=True)
class StoredVersion:
    ark: str
    number: int
    jid: str
    created: datetime
    files: tuple[StoredFile, ...]
    url: str
    key: str = ""
    """The job's key; empty for a job of a release before 0.2.1."""
    verified: datetime | None = field(default=None, compare=False)
    """When the version's added files were read back; None if not known."""


@dataclass(frozen=True, slots=True)
class ReadBackFile:
    """A version's file as it was read back from storage."""

    number: int
    path: str
    at: datetime
    size: int | None = None
    sha512: str | None = None
    problem: str = ""
    """Why the bytes could not be read; size and sha512 are then None."""
    place: str = ""
    """Where the bytes are in storage, for the person who restores them."""
