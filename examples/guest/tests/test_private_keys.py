"""The check finds private keys, and nothing else."""

import hashlib
from pathlib import Path

from archive_guest.private_keys import CHUNK, PrivateKeyCheck

from pipeline.checks import CheckedFile, CheckFinding, CheckVerdict

KEY = b"-----BEGIN RSA PRIVATE" + b" KEY-----\n"


class Running:
    def alive(self) -> None:
        """The work goes on."""


def checked(folder: Path, content: bytes) -> CheckFinding:
    source = folder / "file"
    source.write_bytes(content)
    file = CheckedFile("file", source, len(content), hashlib.sha512(content).hexdigest())
    (finding,) = PrivateKeyCheck(None).run([file], Running())
    return finding


def test_a_private_key_is_found_wherever_it_is(tmp_path: Path) -> None:
    for before in (0, 100, CHUNK - 10, CHUNK + 10):
        assert checked(tmp_path, bytes(before) + KEY).code == "private-key"


def test_other_files_are_fine(tmp_path: Path) -> None:
    for content in (b"", b"-----BEGIN CERTIFICATE-----\n", bytes(2 * CHUNK)):
        assert checked(tmp_path, content).verdict is CheckVerdict.FINE
