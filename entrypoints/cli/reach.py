"""How a command reaches its site: whether it works over the API when ARKLINE_URL and ARKLINE_TOKEN are set.

Every command of the table has its row here; none ignores the variables.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from pipeline.errors import UsageRefused

URL, TOKEN = "ARKLINE_URL", "ARKLINE_TOKEN"

STACK_URL = "ARKLINE_STACK_URL"
"""The API of the stack whose settings the environment has too, as its file `run/environment` sets them."""


class Reach(StrEnum):
    API = "api"
    """Over the API, with the same output and exit codes as beside the stack."""
    BESIDE = "beside the stack"
    """Only with the stack's settings: the API has no route for it."""
    FILES = "files of this machine"
    """It asks neither a site nor the stack that the variables name."""


DRY_RUN = "--dry-run of this verb"
"""Of a verb that the API only carries out."""

REACH: dict[str, Reach] = {
    "submit": Reach.API,
    "watch": Reach.API,
    "report": Reach.API,
    "manifest check": Reach.FILES,
    "manifest from-csv": Reach.FILES,
    "profile list": Reach.API,
    "profile show": Reach.API,
    "profile template": Reach.FILES,
    "profile check": Reach.FILES,
    "profile renew": Reach.API,
    "status": Reach.API,
    "top": Reach.API,
    "jobs": Reach.API,
    "timeline": Reach.API,
    "why": Reach.API,
    "object": Reach.API,
    "export": Reach.BESIDE,
    "fixity report": Reach.API,
    "fixity check": Reach.BESIDE,
    "space": Reach.API,
    "check": Reach.API,
    "audit": Reach.API,
    "hold": Reach.API,
    "release": Reach.API,
    "resume": Reach.API,
    "fail": Reach.API,
    "delete": Reach.API,
    "cancel": Reach.API,
    "repair": Reach.API,
    "update-report": Reach.API,
    "pause": Reach.API,
    "unpause": Reach.API,
    "history": Reach.API,
    "drain": Reach.API,
    "cleanup": Reach.API,
    "init": Reach.BESIDE,
    "backup": Reach.BESIDE,
    "restore": Reach.BESIDE,
    "callback list": Reach.API,
    "callback deliver": Reach.API,
    "callback test": Reach.API,
    "token create": Reach.BESIDE,
    "token list": Reach.BESIDE,
    "token revoke": Reach.BESIDE,
    "exporter": Reach.BESIDE,
    "web": Reach.BESIDE,
    "reconcile": Reach.BESIDE,
    "worker": Reach.BESIDE,
    "beat": Reach.BESIDE,
    "flower": Reach.BESIDE,
    "standalone start": Reach.FILES,
    "standalone stop": Reach.FILES,
}


def checked(name: str, function: Callable[..., None]) -> Callable[..., None]:
    """The command, which is refused where it would work on another site than ARKLINE_URL says."""
    if REACH[name] is not Reach.BESIDE:
        return function

    @functools.wraps(function)
    def run(*values: Any, **options: Any) -> None:
        refuse_over_api(f"`arkline {name}`")
        function(*values, **options)

    return run


def is_own_stack() -> bool:
    """Whether ARKLINE_URL names the stack whose settings the environment has too."""
    return URL in os.environ and os.environ[URL] == os.environ.get(STACK_URL)


def refuse_over_api(what: str) -> None:
    """UsageRefused if the variables name another site: `what` is for the stack beside this process."""
    if is_own_stack():
        return
    if given := [name for name in (URL, TOKEN) if os.environ.get(name)]:
        names = " and ".join(given)
        raise UsageRefused(f"{what} is not offered over the API: unset {names}, and run it beside the stack")
