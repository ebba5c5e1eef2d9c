"""The application called in this process: an answer of any size."""

import time
from collections.abc import Iterator

import pytest
from anyio.from_thread import start_blocking_portal
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from entrypoints.web.in_process import InProcess
from pipeline.principal import Interface, Principal, Role

SIZE = 64 << 20
READ_SECONDS = 10.0
"""Far more than reading needs, and far less than copying what is left for each part: two minutes."""


async def large(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(b"a" * SIZE)(scope, receive, send)


@pytest.fixture
def in_process() -> Iterator[InProcess]:
    adapter = InProcess(Principal(name="ann", role=Role.ADMIN, interface=Interface.CLI))
    with start_blocking_portal() as portal:
        adapter.open(large, portal)
        yield adapter


def test_a_large_answer_is_read_in_a_time_that_grows_with_its_size_and_not_with_the_square(
    in_process: InProcess,
) -> None:
    answer = in_process.request("GET", "http://arkline/", body=None, headers={})
    read, limit = 0, time.monotonic() + READ_SECONDS

    while (part := answer.read(1 << 13)) and time.monotonic() < limit:
        read += len(part)

    assert read == SIZE
