"""The umask of every process; a file of its own, because the command line sets it before it loads more."""

import os

PRIVATE = 0o027
"""Deposits and databases are for their user and group alone."""


def keep_private() -> None:
    """Let other users of this machine read nothing that this process and its children create."""
    os.umask(os.umask(PRIVATE) | PRIVATE)
