"""The table of docs/security.md, "Checks of deposits": which limits of a check hold, as root and as another
user, and what is said where the kernel lacks one."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.decoding import limits
from tests.support.fleet import PROJECT
from tests.support.requirements import unavailable

pytestmark = pytest.mark.skipif(
    not (limits.restricts_files() and limits.restricts_calls()),
    reason="this kernel has no Landlock or seccomp",
)

NOBODY = 54321
"""A user without a name, a home or a group of the machine."""

FILES = {"change-file", "remove-file", "make-file", "read-secrets"}
CALLS = {"socket", "program", "fork", "signal", "trace", "attribute", "truncate"}


@dataclass(frozen=True)
class User:
    python: str
    folder: Path
    options: dict[str, Any]

    def does(self, *lacking: str) -> dict[str, set[str]]:
        """What a hostile check does for this user, on a kernel without some protections."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = str(listener.getsockname()[1])
            argv = [self.python, "-m", "tests.support.confined_check", str(self.folder), port, *lacking]
            done = subprocess.run(
                argv,
                cwd="/",
                env={"PYTHONPATH": os.pathsep.join((str(PROJECT), *_packages())), "PATH": "/usr/bin:/bin"},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
                **self.options,
            )
        assert done.returncode == 0, done.stderr
        return {name: set(values) for name, values in json.loads(done.stdout).items()}


def _packages() -> list[str]:
    return [entry for entry in sys.path if entry.endswith("-packages")]


@pytest.fixture(params=["own user", "another user"])
def user(request: pytest.FixtureRequest) -> Iterator[User]:
    with tempfile.TemporaryDirectory() as folder:
        if request.param == "own user":
            yield User(sys.executable, Path(folder), {})
            return
        if os.geteuid() != 0:
            unavailable("only root can start a process of another user")
        os.chown(folder, NOBODY, NOBODY)
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        yield User(_python_for(other), Path(folder), other)


def _python_for(other: dict[str, Any]) -> str:
    """A Python of this version that the user may start: ours may be in the home of root."""
    version = "import sys; print(*sys.version_info[:2])"
    for program in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin") or ""):
        try:
            done = subprocess.run(
                [program, "-c", version], capture_output=True, text=True, check=True, cwd="/", **other
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        if done.stdout.split() == [str(part) for part in sys.version_info[:2]]:
            return program
    unavailable("no Python of this version that another user may start")


def test_every_limit_holds_as_root_and_as_another_user(user: User) -> None:
    done = user.does()

    assert done["could"] == set()
    assert done["tried"] == {*FILES, *CALLS, "network"}
    assert done["unchecked"] == {"out-of-memory"}
    assert done["said"] == set()


@pytest.mark.parametrize(
    ("lacking", "could"),
    [(limits.FILES, "read-secrets"), (limits.CALLS, "socket"), (limits.NETWORK, "network")],
)
def test_a_limit_that_the_kernel_lacks_is_named_in_the_log_and_the_others_hold(
    user: User, lacking: str, could: str
) -> None:
    groups = {limits.FILES: FILES, limits.CALLS: CALLS, limits.NETWORK: {"network"}}

    done = user.does(lacking)

    assert could in done["could"] <= groups[lacking]
    assert done["unchecked"] == {"out-of-memory"}
    assert done["said"]
    assert all(f"runs without {lacking}: " in said for said in done["said"])
