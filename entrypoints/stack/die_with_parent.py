"""Run a program that dies with its parent: `python die_with_parent.py PARENT PROGRAM [ARGUMENT...]`.

Linux only: on request, the kernel sends SIGKILL to a process when its parent dies, even by SIGKILL. This is a
separate program because the request must be made between fork and exec, where a process with threads may not
run Python. Standard library only, with few modules: it starts before every server.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent = int(sys.argv[1])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the request was made
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - the caller names the program, no shell is involved


if __name__ == "__main__":
    main()
