"""What only a host of the stack can do, in one list: every other command asks the site over its API.

These commands need the settings, the processes or the disks of that host. In a shell with the stack's file
`run/environment` they work on that stack; where ARKLINE_URL names another site, they refuse.
"""

from __future__ import annotations

import os

from pipeline.errors import UsageRefused

URL, TOKEN = "ARKLINE_URL", "ARKLINE_TOKEN"

STACK_URL = "ARKLINE_STACK_URL"
"""The API of the stack whose settings the environment has too, as its file `run/environment` sets them."""

HOST_ONLY = frozenset(
    {
        "export",
        "fixity check",
        "init",
        "backup",
        "restore",
        "exporter",
        "web",
        "worker",
        "beat",
        "flower",
    }
)


def is_own_stack() -> bool:
    """Whether ARKLINE_URL names the stack whose settings the environment has too."""
    return URL in os.environ and os.environ[URL] == os.environ.get(STACK_URL)


def refuse_over_api(what: str) -> None:
    """UsageRefused if the variables name another site: `what` is for the host of a stack."""
    if is_own_stack():
        return
    if given := [name for name in (URL, TOKEN) if os.environ.get(name)]:
        names = " and ".join(given)
        raise UsageRefused(f"{what} is not offered over the API: unset {names}, and run it beside the stack")
