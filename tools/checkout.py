"""The folders of this checkout. Standard library only, like tools/bootstrap.py, which uses it."""

import os
import shlex
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
VENV = PROJECT / ".venv"
VAR = PROJECT / "var"
"""All data of the stack and the bootstrap."""


def own_profiles() -> dict[str, str]:
    """The variable that selects this checkout's sample profiles, unless the caller has set it."""
    return {"ARKLINE_PROFILES": os.environ.get("ARKLINE_PROFILES") or str(PROJECT / "examples" / "profiles")}


def stop_command(home: Path) -> str:
    """The command in this checkout that stops the stack in `home`."""
    return "./dev down" if home == VAR else shlex.join(("./dev", "down", "--home", str(home)))
