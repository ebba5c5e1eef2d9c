import pytest
from kazoo.protocol import serialization
from kazoo.protocol.serialization import Create, SetData, Transaction
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from zkstate.direct import requests
from zkstate.direct.requests import MultiRequest, NodeTemplate

ACCESS = [make_digest_acl("user", "secret", all=True)]
PREFIX = "/r\u00f6\u00f6t/jid0000000001"
NODES: tuple[tuple[str, bytes | None], ...] = (
    ("/jobs/jid0000000001", b""),
    ("/jobs/jid0000000001/configuration", None),
    ("/jobs/jid0000000001/history", b'[{"by":"jid0000000001"}]'),
    ("/jobs/jid0000000001/identifiers", None),
    ("/jobs/states/pending/05-jid0000000001", b""),
)
CONTENTS = {"jid0000000001": (b"{}", b""), "jid9999999999": (bytes(range(256)), b"jid0000000001")}


def kazoo_requests(name: str, contents: tuple[bytes, ...], access: list[object]) -> list[Create]:
    own = iter(contents)
    return [
        Create(PREFIX + path.replace("jid0000000001", name), next(own) if data is None else data, access, 0)
        for path, data in NODES
    ]


def encoded(access: list[object]) -> MultiRequest:
    template = NodeTemplate.cut("jid0000000001", NODES, PREFIX, access)
    things = [template.encode(name.encode(), contents) for name, contents in CONTENTS.items()]
    return MultiRequest([requests.put("/ids/job", b"2", 7), *things], len(things) * template.answer_bytes)


@pytest.mark.parametrize("access", [OPEN_ACL_UNSAFE, ACCESS, [*OPEN_ACL_UNSAFE, *ACCESS]])
def test_a_transaction_by_a_template_has_the_bytes_of_kazoo(access: list[object]) -> None:
    creations = [
        request for name, contents in CONTENTS.items() for request in kazoo_requests(name, contents, access)
    ]
    expected = Transaction([SetData("/ids/job", b"2", 7), *creations])

    assert encoded(access).serialize() == bytes(expected.serialize())
    assert encoded(access).type == expected.type


def test_the_results_of_a_transaction_are_those_of_the_operations_before_the_encoded_ones() -> None:
    stat = serialization.stat_struct.pack(*range(11))
    created = [request.path for name in CONTENTS for request in kazoo_requests(name, CONTENTS[name], ACCESS)]
    answer = b"".join(
        (
            b"reply header",
            header(SetData.type) + stat,
            *(header(Create.type) + bytes(serialization.write_string(path)) for path in created),
            serialization.multiheader_struct.pack(-1, True, -1),
        )
    )

    results = encoded(ACCESS).deserialize(answer, len(b"reply header"))

    assert results == Transaction.deserialize(answer, len(b"reply header"))[:1]
    assert results[0].mzxid == 1


def test_every_result_of_a_transaction_that_was_refused_is_an_error() -> None:
    codes = [0, 0, 0, -110, *[-2] * 7]
    answer = b"".join(
        (
            *(header(-1) + serialization.int_struct.pack(code) for code in codes),
            serialization.multiheader_struct.pack(-1, True, -1),
        )
    )

    results = encoded(ACCESS).deserialize(answer, 0)

    assert [result.code for result in results] == codes


def header(kind: int) -> bytes:
    return bytes(serialization.multiheader_struct.pack(kind, False, 0 if kind > 0 else -2))
