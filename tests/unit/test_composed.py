"""Answers of any size: the same JSON as of a whole, in pieces."""

import asyncio
import json
from dataclasses import dataclass

import pytest
from pydantic_core import to_json

from entrypoints.web.composed import PORTION, LargeJson, members, portions, with_list
from pipeline.attempt import UNATTENDED, CheckedAttempt
from pipeline.outcome import AttemptOver


@dataclass(frozen=True)
class File:
    path: str
    size: int


@dataclass(frozen=True)
class Version:
    number: int
    files: tuple[File, ...]
    note: str = 'said "so"'


@pytest.mark.parametrize("count", [0, 1, PORTION, PORTION + 1, 10 * PORTION])
def test_a_list_in_portions_is_the_same_json(count: int) -> None:
    version = Version(1, tuple(File(f"ä/{number}", number) for number in range(count)))

    pieces = list(with_list(version, "files", portions(version.files)))

    assert json.loads(b"".join(pieces)) == json.loads(to_json(version))
    assert max(map(len, pieces)) < 40 * PORTION


def test_lists_in_lists_and_members_are_the_same_json() -> None:
    versions = tuple(Version(number, (File("a", 1),) * number) for number in range(3))

    @dataclass(frozen=True)
    class Known:
        ark: str
        versions: tuple[Version, ...]

    known = Known("ark:/99999/fk4", versions)
    listed = (with_list(one, "files", portions(one.files)) for one in versions)
    document = (("object", with_list(known, "versions", listed)), ("timeline", (to_json(()),)))

    assert json.loads(b"".join(members(document))) == {"object": json.loads(to_json(known)), "timeline": []}


def test_an_answer_states_its_length() -> None:
    answer = LargeJson((b'{"a":', b"1}"), UNATTENDED)

    async def body() -> list[object]:
        return [piece async for piece in answer.body_iterator]

    assert asyncio.run(body()) == [b'{"a":1}']
    assert (answer.headers["content-length"], answer.headers["content-type"]) == ("7", "application/json")


def test_composing_ends_with_the_attempt() -> None:
    def over() -> None:
        raise AttemptOver("nobody waits")

    with pytest.raises(AttemptOver):
        LargeJson((b"{}",), CheckedAttempt(over))
