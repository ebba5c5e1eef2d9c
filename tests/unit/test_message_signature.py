"""Signatures of messages: whatever the header has, a message is accepted or foreign."""

import pytest
from kombu.utils.json import dumps

from tasks.message import Foreign
from tasks.signing import HEADER, Keys

KEYS = Keys((b"a key of this site",))
HEADERS: dict[str, object] = {"task": "job.pending", "id": "1"}
MESSAGE: dict[str, object] = {"body": "W10=", "headers": HEADERS}


def test_a_signed_message_is_accepted_by_the_same_key_alone() -> None:
    signed = KEYS.sign(MESSAGE)

    KEYS.verify(signed)
    with pytest.raises(Foreign, match="not of a key"):
        Keys((b"a key of another",)).verify(signed)


@pytest.mark.parametrize("given", ["", "\ud800", "é" * 64, 7, None, ["x"], "0" * 64])
def test_a_senseless_signature_makes_a_message_foreign_and_raises_nothing_else(given: object) -> None:
    with pytest.raises(Foreign):
        KEYS.verify({**MESSAGE, "headers": {**HEADERS, HEADER: given}})


def test_a_worker_that_says_what_it_is_shows_no_key() -> None:
    assert (
        dumps({"transport_options": {"message_keys": KEYS}})
        == '{"transport_options": {"message_keys": "1 keys"}}'
    )


def test_headers_with_characters_that_utf_8_lacks_are_signed() -> None:
    odd = {**MESSAGE, "headers": {"task": "job.pending", "id": "\ud800"}}

    KEYS.verify(KEYS.sign(odd))
