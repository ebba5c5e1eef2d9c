"""The umask of every process; a separate file, because the command line sets it before other imports."""

import os

PRIVATE = 0o027
"""Only user and group may access deposits and databases."""


def keep_private() -> None:
    """Keep other users of this machine from reading what this process and its children create."""
    os.umask(os.umask(PRIVATE) | PRIVATE)
