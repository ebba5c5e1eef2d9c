"""The folders of this checkout. Standard library only, like tools/bootstrap.py, which uses it."""

import os
import shlex
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
VENV = PROJECT / ".venv"
VAR = PROJECT / "var"
"""Everything that the stack and the bootstrap keep."""


def own_profiles() -> dict[str, str]:
    """The variable that selects the sample profiles of this checkout, unless the caller has set it."""
    return {"ARKLINE_PROFILES": os.environ.get("ARKLINE_PROFILES") or str(PROJECT / "examples" / "profiles")}


def stop_command(home: Path) -> str:
    """The command of this checkout that stops the stack in the folder."""
    return "./dev down" if home == VAR else shlex.join(("./dev", "down", "--home", str(home)))
