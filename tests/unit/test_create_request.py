import pytest
from kazoo.protocol import serialization
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from zkstate.direct.requests import CreateRequest

ACCESS = [make_digest_acl("u\u00fcser", "secret", all=True)]


@pytest.mark.parametrize("path", ["/a", "/jobs/jid0000000001/b\u00e4r"])
@pytest.mark.parametrize("data", [b"", b"{}", bytes(range(256))])
@pytest.mark.parametrize("access", [OPEN_ACL_UNSAFE, ACCESS, [*OPEN_ACL_UNSAFE, *ACCESS]])
@pytest.mark.parametrize("flags", [0, 1])
def test_a_request_to_create_a_node_has_the_bytes_of_kazoo(
    path: str, data: bytes, access: list[object], flags: int
) -> None:
    expected = serialization.Create(path, data, access, flags)

    assert bytes(CreateRequest(*expected).serialize()) == bytes(expected.serialize())
    assert CreateRequest.type == expected.type
