"""The property of every reader of foreign bytes: a result or an error of ours, within a bound of time."""

import time
from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

from pipeline.errors import ArklineError

SECONDS = 5.0
"""Processor time of this thread for one small input; other processes of the machine do not count."""

MESSAGE_LIMIT = 20_000
"""Characters of a message, which the record keeps."""

T = TypeVar("T")

NUMBERS = st.sampled_from(
    [
        "0",
        "-1",
        "1",
        "00",
        "007",
        "+1",
        "1.5",
        "1e400",
        "inf",
        "nan",
        "²",
        "٣",
        "9" * 20,
        "9" * 5000,
        "0x10",
        "",
    ]
)
"""What stands where a number should be."""

WORDS = st.one_of(
    NUMBERS,
    st.text(max_size=20),
    st.sampled_from(
        [
            "../a",
            "/a",
            "a/../b",
            "\x1b[2J",
            "\0",
            "\ufeff",
            "\u202e",
            "a" * 3000,
            "%00",
            "%0A",
            "||",
            "\r\n",
            "ß" * 300,
        ]
    ),
)

BYTES = st.one_of(st.binary(max_size=300), WORDS.map(lambda text: text.encode("utf-8", "surrogatepass")))


def lines(*pieces: st.SearchStrategy[str], most: int = 12) -> st.SearchStrategy[bytes]:
    """Lines of these pieces, with any end, as bytes that may be no text."""
    line = st.lists(st.one_of(*pieces), max_size=5).map("".join)
    text = st.lists(st.tuples(line, st.sampled_from(["\n", "\r\n", "\r", ""])), max_size=most)
    joined = text.map(lambda parts: "".join(line + end for line, end in parts))
    encoded = joined.map(lambda text: text.encode("utf-8", "surrogatepass"))
    return st.one_of(encoded, encoded, st.tuples(encoded, BYTES).map(lambda pair: b"".join(pair)))


def result_or_refusal(read: Callable[[], T]) -> T | ArklineError:
    """What `read` returns, or the error of ours that it raises; any other error fails the test."""
    began = time.thread_time()
    result: T | ArklineError
    try:
        result = read()
    except ArklineError as refusal:
        result = refusal
    if isinstance(result, ArklineError):
        assert 0 < len(str(result)) <= MESSAGE_LIMIT
    assert time.thread_time() - began < SECONDS
    return result
