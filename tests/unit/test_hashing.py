import hashlib
import threading

import pytest

from pipeline.fixity import READ_CHUNK
from pipeline.sources.download import StreamDigester


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "digests of a download"]


@pytest.mark.parametrize("pieces", [0, 1, 3, 40])
def test_the_digests_of_a_stream_are_those_of_its_bytes(pieces: int) -> None:
    piece = bytes(range(256)) * 1_500
    digester = StreamDigester(("sha512", "md5"))
    for _ in range(pieces):
        digester.update(piece)

    body = piece * pieces
    assert digester.size == len(body)
    assert digester.value() == hashlib.sha512(body).hexdigest()
    digester.update(b"more")  # a value in between, as for a note of an unfinished download
    assert digester.value() == hashlib.sha512(body + b"more").hexdigest()
    assert digester.value("md5") == hashlib.md5(body + b"more", usedforsecurity=False).hexdigest()
    assert threads() == []


def test_only_a_large_stream_has_a_thread_which_ends_with_it() -> None:
    digester = StreamDigester()
    digester.update(bytes(READ_CHUNK))
    assert threads() == []

    digester.update(b"a")
    assert len(threads()) == 1
    digester.finish()
    assert threads() == []
