"""`arkline ARGUMENTS` in a shell of a test: `python -I -S forked_command.py SOCKET ARGUMENTS`.

SOCKET is the inherited one of tests/support/command_forks.py. Standard library only, with few modules: a new
interpreter would load those of arkline for each command.
"""

import json
import os
import socket
import sys


def main() -> int:
    ours, theirs = socket.socketpair()
    written = os.memfd_create("order")
    folder = os.getcwd()  # noqa: PTH109 - pathlib takes as long to load as the rest
    os.write(written, json.dumps(["", sys.argv[2:], dict(os.environ), folder]).encode())
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        socket.send_fds(orders, [b"."], [written, 0, 1, 2, theirs.fileno()])
    theirs.close()
    with ours.makefile("r") as answers:
        answers.readline()  # the process id
        return int(answers.readline()) & 0xFF


if __name__ == "__main__":
    sys.exit(main())
