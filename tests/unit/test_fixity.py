import hashlib
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.fixity import (
    HEX_LENGTH,
    READ_CHUNK,
    Digest,
    Digester,
    DigestMismatch,
    UnknownAlgorithm,
    algorithm,
    digest_file,
)

# Published test values of the letters "abc" (RFC 1321 and 7693, FIPS 180-4 and 202), and checksums of zlib.
ABC = {
    "adler32": "024d0127",
    "crc32": "352441c2",
    "md5": "900150983cd24fb0d6963f7d28e17f72",
    "sha1": "a9993e364706816aba3e25717850c26c9cd0d89d",
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    "sha384": "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded163"
    "1a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
    "sha512": "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
    "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
    "sha224": "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
    "sha3_224": "e642824c3f8cf24ad09234ee7d3c766fc9a3a5168d0c94ad73b46fdf",
    "sha3_256": "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532",
    "sha3_384": "ec01498288516fc926459f58e2c6ad8df9b473cb0fc08c2596da7cf0e49be4b2"
    "98d88cea927ac7f539f1edf228376d25",
    "sha3_512": "b751850b1a57168a5693cd924b6b096e08f621827444f70d884f5d0240d2712e"
    "10e116e9192af3c91a7ec57647e3934057340b4cf408d5a56592f8274eec53f0",
    "blake2b": "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
    "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
    "blake2s": "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982",
}


@pytest.mark.parametrize("name", HEX_LENGTH)
def test_every_algorithm_gives_its_published_value(name: str) -> None:
    digester = Digester((name,))
    digester.update(b"abc")

    assert digester.value(name) == ABC[name]


@pytest.mark.parametrize("spelling", ["SHA-256", "sha256", "Sha_256", " sha-256 "])
def test_spellings_of_an_algorithm_are_one(spelling: str) -> None:
    assert algorithm(spelling) == "sha256"


@pytest.mark.parametrize("name", ["md2", "sha3", "", "sha256x"])
def test_an_unknown_algorithm_is_refused_with_those_that_are_known(name: str) -> None:
    with pytest.raises(UnknownAlgorithm, match=f"'{name}' is not known; use one of adler32, crc32, md5"):
        algorithm(name)


def test_a_digest_is_kept_in_one_spelling() -> None:
    digest = Digest(algorithm="MD5", value=f" {ABC['md5'].upper()} ")

    assert str(digest) == f"md5:{ABC['md5']}"


@pytest.mark.parametrize(
    ("name", "value"),
    [("md5", ABC["sha1"]), ("md5", "g" * 32), ("md5", ""), ("sha256", ABC["sha256"][:-1]), ("md2", "0" * 32)],
)
def test_a_malformed_digest_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValidationError):
        Digest(algorithm=name, value=value)


@given(st.lists(st.binary(max_size=50)))
def test_a_stream_is_digested_as_a_whole_however_it_is_cut(pieces: list[bytes]) -> None:
    digester = Digester(("crc32", "sha512"))
    for piece in pieces:
        digester.update(piece)
    whole = b"".join(pieces)

    assert digester.size == len(whole)
    assert digester.value() == hashlib.sha512(whole).hexdigest()
    assert digester.value("crc32") == f"{zlib.crc32(whole):08x}"


def test_the_right_bytes_pass_and_others_name_both_digests() -> None:
    digester = Digester(("md5",))
    digester.update(b"abc")
    digester.check(Digest(algorithm="md5", value=ABC["md5"]), "a.txt")
    wrong = Digest(algorithm="md5", value="0" * 32)

    with pytest.raises(
        DigestMismatch, match=rf"a\.txt: the md5 digest is {ABC['md5']}, but {'0' * 32} was declared"
    ):
        digester.check(wrong, "a.txt")


def test_a_file_longer_than_one_piece_is_digested_whole(tmp_path: Path) -> None:
    data = b"x" * (READ_CHUNK + 1)
    (tmp_path / "a").write_bytes(data)
    digester = digest_file(tmp_path / "a", ("md5", "sha512"))

    assert digester.size == READ_CHUNK + 1
    assert digester.value() == hashlib.sha512(data).hexdigest()
    assert digester.value("md5") == hashlib.md5(data).hexdigest()
