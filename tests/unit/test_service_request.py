"""A request to a service: a redirect is an answer, and its address is neither followed nor read."""

import gc

import pytest
import requests

from pipeline.http import service
from tests.servers.raw_answer import RawAnswer


@pytest.mark.parametrize(
    "location", [b"http://[", b"http://a:99999/", b"//", b"\xff\xfe", "/\u00e9".encode(), b"http://..x/"]
)
def test_an_answer_with_an_address_that_is_none_is_read_and_leaves_no_socket_open(location: bytes) -> None:
    with RawAnswer() as server:
        server.answer = b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\nContent-Length: 4\r\n\r\nmore"
        answer = service.request("GET", server.url)
        assert (answer.status_code, answer.content) == (302, b"more")
        del answer
        gc.collect()  # a socket that is left open is an error of the test
        assert len(server.asked) == 1


def test_a_body_that_cannot_be_decoded_leaves_no_socket_open() -> None:
    with RawAnswer() as server:
        server.answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nno gzip" + bytes(1 << 20)
        with pytest.raises(requests.exceptions.ContentDecodingError):
            service.request("GET", server.url)
        gc.collect()
