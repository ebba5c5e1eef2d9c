"""Small files that a clamd must not call clean, made at run time: no file of arkline has a test virus.

A clamd that calls one of them clean passes over what it has not read, and says so nowhere.
"""

import io
import tarfile
import zipfile
from collections.abc import Callable
from functools import cache

from pipeline.checks import CheckVerdict, Obstacle
from plugins.clamav.answer import findings

LARGEST = (1 << 31) - 1
"""Bytes: ClamAV reads no larger file, whatever its configuration says."""

DEPTH = 120
"""Archives inside each other: more than the greatest MaxRecursion, 100."""

NO_SIGNATURES = "does not find EICAR's test file: its signatures are missing or incomplete; run freshclam"
PASSES_OVER_LIMITS = (
    "calls clean what exceeds its limits: set AlertExceedsMax yes in clamd.conf and restart clamd"
)
PASSES_OVER_ENCRYPTED = (
    "calls clean what is encrypted: set AlertEncrypted yes in clamd.conf and restart clamd"
)
SHORTENS = (
    "calls clean what a ZIP file holds beyond MaxFileSize: set MaxScanSize in clamd.conf no larger than "
    "MaxFileSize and restart clamd"
)

_ENCRYPTED_BIT = 1
_LOCAL, _CENTRAL = (b"PK\3\4", 6), (b"PK\1\2", 8)
"""Where the headers of a member have their flags: after this mark, at this offset."""


Scan = Callable[[bytes], tuple[str, ...]]
"""Clamd's answers about a file with these bytes."""


def complaint(scan: Scan) -> str:
    """What clamd does that it must not, with the remedy and its answer; empty if it can be trusted."""
    for content, expected, remedy in (
        (eicar(), (CheckVerdict.FOUND, None), NO_SIGNATURES),
        (nested(), (CheckVerdict.UNCHECKED, Obstacle.TOO_LARGE), PASSES_OVER_LIMITS),
        (encrypted(), (CheckVerdict.UNCHECKED, Obstacle.ENCRYPTED), PASSES_OVER_ENCRYPTED),
    ):
        answers = scan(content)
        verdict, code = expected
        if not any(item.verdict is verdict and code in (None, item.code) for item in findings("", answers)):
            return f"{remedy} (its answer: {answers[0][:100]!r})"
    return SHORTENS if _shortens(scan) else ""


def _shortens(scan: Scan) -> bool:
    """Whether clamd passes over the end of a large member of a ZIP file.

    It shortens such a member to MaxFileSize without a word; only if it then exceeds MaxScanSize as well is
    there an alert. The header of a tar file, which gives the size of a member that follows, is enough to
    find out which of the limits is the lower one.
    """
    low, high = 0, LARGEST
    while low < high:
        size = (low + high + 1) // 2
        said = " ".join(scan(member_of(size)))
        if "MaxFileSize" in said:
            return True
        low, high = (low, size - 1) if "MaxScanSize" in said else (size, high)
    return False


def member_of(size: int) -> bytes:
    """The beginning of a tar file, whose member has so many bytes."""
    member = tarfile.TarInfo("a")
    member.size = size
    return member.tobuf(tarfile.USTAR_FORMAT)


def eicar() -> bytes:
    """The file of EICAR, which scanners report as a virus by agreement."""
    return b"".join(
        (b"X5O!P%@AP[4\\PZX54", b"(P^)7CC)7}$", b"EICAR-", b"STANDARD-ANTIVIRUS", b"-TEST-FILE!$H+H*")
    )


@cache
def nested(depth: int = DEPTH) -> bytes:
    """A harmless file in so many archives."""
    content = b"nothing"
    for _ in range(depth):
        content = zipped(content)
    return content


def zipped(content: bytes, name: str = "a") -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def encrypted() -> bytes:
    """An archive whose member is marked as encrypted."""
    data = bytearray(zipped(b"a member that nobody can read"))
    for mark, offset in (_LOCAL, _CENTRAL):
        data[data.index(mark) + offset] |= _ENCRYPTED_BIT
    return bytes(data)
