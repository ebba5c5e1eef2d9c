"""The commands that only a host of the stack can run; every other command calls the site's API.

These commands need the settings, processes or disks of that host. In a shell with the stack's file
`run/environment` they act on that stack; if ARKLINE_URL names another site, they are refused.
"""

from __future__ import annotations

import os

from pipeline.errors import UsageRefused

URL, TOKEN = "ARKLINE_URL", "ARKLINE_TOKEN"

STACK_URL = "ARKLINE_STACK_URL"
"""The API URL of the stack whose settings are in the environment, too; set by its `run/environment`."""

HOST_ONLY = frozenset(
    {
        "fixity check",
        "doctor",
        "support-bundle",
        "init",
        "backup",
        "restore",
        "exporter",
        "web",
        "worker",
        "beat",
        "flower",
        "certificates renew",
    }
)


def is_own_stack() -> bool:
    """Whether ARKLINE_URL names the stack whose settings are also in the environment."""
    return URL in os.environ and os.environ[URL] == os.environ.get(STACK_URL)


def refuse_over_api(what: str) -> None:
    """UsageRefused if the variables name another site: `what` must run on a host of the stack."""
    if is_own_stack():
        return
    if given := [name for name in (URL, TOKEN) if os.environ.get(name)]:
        names = " and ".join(given)
        raise UsageRefused(f"{what} is not offered over the API: unset {names}, and run it beside the stack")
