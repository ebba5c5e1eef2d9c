"""Answers of any size: composed in full, beyond IN_MEMORY in a temporary file, and then sent in pieces.

A failure while an answer is composed is a problem, and a client that reads slowly holds no memory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from pydantic_core import to_json
from starlette.responses import StreamingResponse

from pipeline.attempt import Attempt
from pipeline.fixity import READ_CHUNK
from pipeline.preservation.premis_record import IN_MEMORY

PORTION = 500
"""Elements of a list that are serialized at a time."""

Pieces = Iterable[bytes]


class Composed(StreamingResponse):
    def __init__(
        self,
        document: Pieces,
        attempt: Attempt,
        headers: Mapping[str, str] | None = None,
        status_code: int = 200,  # FastAPI reads it from here
    ) -> None:
        """`attempt` may end the composing."""
        with ExitStack() as unless_complete:
            copy = unless_complete.enter_context(SpooledTemporaryFile(max_size=IN_MEMORY))
            for piece in document:
                attempt.check()
                copy.write(piece)
            size = copy.tell()
            copy.seek(0)
            super().__init__(_sent(copy), status_code, {"Content-Length": str(size), **(headers or {})})
            unless_complete.pop_all()


class Xml(Composed):
    media_type = "application/xml"


class LargeJson(Composed):
    media_type = "application/json"


def _sent(copy: IO[bytes]) -> Iterator[bytes]:
    with copy:
        while piece := copy.read(READ_CHUNK):
            yield piece


def with_list(value: Any, name: str, elements: Iterable[Pieces]) -> Iterator[bytes]:
    """A dataclass as JSON, in whose field `name` are these `elements`."""
    yield from members(
        (field.name, _list(elements) if field.name == name else (to_json(getattr(value, field.name)),))
        for field in fields(value)
    )


def members(given: Iterable[tuple[str, Pieces]]) -> Iterator[bytes]:
    """An object of JSON with these members, of which there is one at least."""
    before = b"{"
    for name, pieces in given:
        yield before + to_json(name) + b":"
        yield from pieces
        before = b","
    yield b"}"


def _list(elements: Iterable[Pieces]) -> Iterator[bytes]:
    yield b"["
    for number, pieces in enumerate(elements):
        if number:
            yield b","
        yield from pieces
    yield b"]"


def portions(elements: Sequence[object]) -> Iterator[Pieces]:
    """Elements of a list as JSON, PORTION at a time."""
    for start in range(0, len(elements), PORTION):
        yield (to_json(elements[start : start + PORTION])[1:-1],)
