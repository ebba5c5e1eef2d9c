"""Finds private keys, which nobody means to deposit."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from pipeline.checks import Access, Check, CheckContext, CheckedFile, CheckFinding, CheckVerdict

BEGINNING = b"-----BEGIN "
END = b" PRIVATE KEY-----"
CHUNK = 1 << 20


class PrivateKeyCheck(Check):
    name: ClassVar[str] = "private-keys"
    access: ClassVar[Access] = Access(seconds=30.0)
    settings: ClassVar[Any] = None

    def __init__(self, settings: None) -> None:
        del settings

    @property
    def version(self) -> str:
        return "1.0"

    def run(self, files: Iterable[CheckedFile], context: CheckContext) -> Iterator[CheckFinding]:
        for file in files:
            if _has_key(file, context):
                message = "the file contains a private key: remove it, and use another key from now on"
                yield CheckFinding(
                    path=file.path, verdict=CheckVerdict.FOUND, code="private-key", message=message
                )
            else:
                yield CheckFinding(path=file.path, verdict=CheckVerdict.FINE)


def _has_key(file: CheckedFile, context: CheckContext) -> bool:
    with file.source.open("rb") as stream:
        before = b""
        while chunk := stream.read(CHUNK):
            context.alive()
            for part in (before + chunk).split(BEGINNING)[1:]:
                if END in part[:40]:
                    return True
            before = chunk[-60:]
    return False
