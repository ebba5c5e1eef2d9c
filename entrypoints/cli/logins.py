"""The logins of this user at sites, in `$XDG_CONFIG_HOME/arkline/logins.json`, which nobody else may read.

The file is replaced as a whole, by one command at a time. Programs of a stack do not read it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from pydantic import Field, ValidationError

from pipeline.errors import UsageRefused
from pipeline.file_system import opened, read_all, replace_file
from pipeline.records import Record


class SavedLogin(Record):
    token: str = Field(repr=False)
    name: str = ""
    expires: datetime | None = None


class SavedLogins(Record):
    current: str = ""
    """The URL of the site that commands ask."""
    servers: dict[str, SavedLogin] = Field(default_factory=dict)


def file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "arkline" / "logins.json"


def read() -> SavedLogins:
    """The logins; UsageRefused if others may read the file, or it is damaged."""
    path = file()
    try:
        with opened(path, os.O_RDONLY) as descriptor:
            if os.fstat(descriptor).st_mode & 0o077:
                raise UsageRefused(f"{path} has tokens and is open to other users: chmod 600 {path}")
            return SavedLogins.model_validate_json(read_all(path))
    except FileNotFoundError:
        return SavedLogins()
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise UsageRefused(f"{path} cannot be read ({why}): remove it, and log in again") from error


def change(changed: Callable[[SavedLogins], SavedLogins]) -> None:
    """Replace the logins by what `changed` makes of them."""
    path = file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    with opened(path.parent, os.O_RDONLY | os.O_DIRECTORY) as folder:
        fcntl.flock(folder, fcntl.LOCK_EX)
        replace_file(path, changed(read()).model_dump_json(indent=1))
        os.fsync(folder)
