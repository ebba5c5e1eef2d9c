"""A hostile check in a process of its own, on a kernel that lacks some protections: what it could do.

`python -m tests.support.confined_check FOLDER PORT LACKING...` prints it as JSON. What is lacking is refused
by a filter of system calls, with the error of a kernel that has no such call.
"""

import ctypes
import errno
import hashlib
import json
import logging
import platform
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from pipeline.attempt import UNATTENDED
from pipeline.checking.process import Checker, Opening
from pipeline.checks import CheckedFile, CheckFinding, CheckVerdict
from pipeline.decoding import limits
from tests.support import guests

LACKS = {limits.FILES: (444, 445, 446), limits.NETWORK: ({"x86_64": 272, "aarch64": 97},)}
"""The system calls by which a process gets the protection: those of Landlock, and unshare."""
_PRCTL = {"x86_64": 157, "aarch64": 167}
_SET_SECCOMP, _FILTER, _NO_NEW_PRIVILEGES = 22, 2, 38
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000


def lack(names: Iterable[str]) -> None:
    """Refuse what gives these protections, in this process and those that it starts."""
    machine = platform.machine()
    code = [(0x20, 0, 0, 0)]  # load the number of the call
    for name in names:
        for number in LACKS.get(name, ()):
            own = number[machine] if isinstance(number, dict) else number
            code += [(0x15, 0, 1, own), (0x06, 0, 0, _REFUSE | errno.ENOSYS)]
    if limits.CALLS in names:  # prctl with that argument alone
        code += [(0x15, 0, 3, _PRCTL[machine]), (0x20, 0, 0, 16)]
        code += [(0x15, 0, 1, _SET_SECCOMP), (0x06, 0, 0, _REFUSE | errno.EINVAL)]
    packed = b"".join(struct.pack("=HBBI", *one) for one in [*code, (0x06, 0, 0, _ALLOW)])
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(packed)
    program = struct.pack("=HxxxxxxQ", len(packed) // 8, ctypes.addressof(buffer))
    assert libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    assert libc.prctl(_SET_SECCOMP, _FILTER, program, 0, 0) == 0


def main() -> None:
    folder, port, *lacking = sys.argv[1:]
    if lacking:
        lack(lacking)
    said = list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("pipeline.checking.process").addHandler(handler)
    checker, found = Checker((Path(folder),)), list[CheckFinding]()
    for name, kind, text in (
        ("attack", guests.Patient, "attack: now"),
        ("memory", guests.Patient, "eat: now"),
        ("network", guests.Dialling, port),
    ):
        source = Path(folder, name)
        source.write_text(text, encoding="utf-8")
        file = CheckedFile(name, source, len(text), hashlib.sha512(text.encode()).hexdigest())
        checker.run(Opening(name, kind), [file], UNATTENDED, lambda _, finding: found.append(finding))
    checker.close()
    could = [finding.code for finding in found if finding.verdict is CheckVerdict.FOUND]
    tried = [finding.code for finding in found if finding.verdict is not CheckVerdict.UNCHECKED]
    unchecked = [finding.code for finding in found if finding.verdict is CheckVerdict.UNCHECKED]
    print(json.dumps({"could": could, "tried": tried, "unchecked": unchecked, "said": said}))  # noqa: T201


if __name__ == "__main__":
    main()
