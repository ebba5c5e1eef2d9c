from collections.abc import Sequence

import pytest
from kazoo.exceptions import NodeExistsError, RolledBackError
from kazoo.protocol import serialization
from kazoo.protocol.serialization import Transaction
from kazoo.security import OPEN_ACL_UNSAFE

from zkstate.direct import requests
from zkstate.direct.requests import MultiRequest

PATH = "/jobs/jid0000000001/bär"

OPERATIONS = [
    (
        serialization.Create(PATH, b"{}", OPEN_ACL_UNSAFE, 1),
        requests.create(PATH, b"{}", OPEN_ACL_UNSAFE, 1),
    ),
    (serialization.SetData(PATH, b"content", 7), requests.put(PATH, b"content", 7)),
    (serialization.SetData(PATH, b"", -1), requests.put(PATH, b"", -1)),
    (serialization.Delete(PATH, -1), requests.delete(PATH)),
    (serialization.CheckVersion(PATH, 3), requests.check(PATH, 3)),
]


@pytest.mark.parametrize("chosen", [OPERATIONS[:0], *([one] for one in OPERATIONS), OPERATIONS])
def test_a_transaction_has_the_bytes_of_kazoo(chosen: Sequence[tuple[object, bytes]]) -> None:
    expected = Transaction([operation for operation, _ in chosen])

    request = MultiRequest([encoded for _, encoded in chosen])

    assert request.serialize() == bytes(expected.serialize())
    assert request.type == expected.type


def _header(kind: int, *, done: bool = False, error: int = 0) -> bytes:
    return bytes(serialization.multiheader_struct.pack(kind, done, error))


STAT = serialization.stat_struct.pack(*range(11))
RESULTS = [
    _header(1) + serialization.write_string(PATH),
    _header(2),
    _header(5) + STAT,
    _header(13),
    _header(-1, error=-110) + serialization.int_struct.pack(-110),
    _header(-1, error=0) + serialization.int_struct.pack(0),
]


@pytest.mark.parametrize("results", [RESULTS[:4], RESULTS[4:], []])
def test_the_results_of_a_transaction_are_those_of_kazoo(results: list[bytes]) -> None:
    content = b"before" + b"".join(results) + _header(-1, done=True, error=-1)

    found, expected = (kind.deserialize(content, 6) for kind in (MultiRequest(()), Transaction))

    assert [repr(result) for result in found] == [repr(result) for result in expected]


def test_a_refused_transaction_names_the_operation_at_fault() -> None:
    content = b"".join(RESULTS[5:] + RESULTS[4:5]) + _header(-1, done=True, error=-1)

    rolled_back, refused = MultiRequest(()).deserialize(content, 0)

    assert isinstance(rolled_back, RolledBackError)
    assert isinstance(refused, NodeExistsError)
