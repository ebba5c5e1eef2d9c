"""A digest in the header of a request: the strongest counts, and no header takes long to read."""

import base64
import hashlib
import time

import pytest

from entrypoints.web.receiving import REPR_DIGEST, declared_digest
from pipeline.errors import UsageRefused
from pipeline.fixity import Digest


def written(algorithm: str) -> str:
    return f":{base64.b64encode(hashlib.new(algorithm, b'a').digest()).decode()}:"


def test_the_strongest_digest_of_the_header_counts() -> None:
    header = f"md5={written('md5')}, sha-256={written('sha256')},sha-1=:a:"

    expected = Digest(algorithm="sha256", value=hashlib.sha256(b"a").hexdigest())
    assert declared_digest({REPR_DIGEST: header}, REPR_DIGEST) == expected


@pytest.mark.parametrize("sign", ["a", "a=", "a=:", "a=:b"])
def test_a_long_header_without_a_digest_is_refused_in_little_time(sign: str) -> None:
    began = time.perf_counter()

    with pytest.raises(UsageRefused, match="no digest that can be compared"):
        declared_digest({REPR_DIGEST: sign * (60_000 // len(sign))}, REPR_DIGEST)
    assert time.perf_counter() - began < 1
