"""From a fresh checkout to a command that runs: the servers' programs, the environment, then the command.

Standard library only: it runs before anything is installed. It speaks on standard error, because standard
output belongs to the command (`./dev demo --json`). What is there already costs nothing but a look.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from entrypoints.stack import java  # noqa: E402 - importable only with the line above
from tools import servers  # noqa: E402

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".stamp"
WITH_SERVERS = frozenset({"demo", "test", "up", "bench", "chaos"})
COMMANDS = WITH_SERVERS | {"down", "check", "lock"}
USAGE = """usage: ./dev COMMAND

  demo    run real batches through the real stack, print the report, stop
  test    run the tests; arguments go to pytest
  up      start the stack and print where it is; down stops a detached one
  check   format, lint, types, imports, lock file
  bench   measure on this machine
  lock    write requirements.lock anew

./dev COMMAND --help says more. The first run installs what is missing.
"""


class BootstrapFailed(Exception):
    """Something is missing that cannot be installed from here; the message has the remedy."""


@dataclass(frozen=True)
class Installer:
    """How to make the environment and install into it: with uv if it is there, else with pip."""

    name: str
    create: tuple[str, ...]
    install: tuple[str, ...]


def say(line: str) -> None:
    print(f"dev: {line}", file=sys.stderr, flush=True)


def timed(what: str, work: Callable[[], None]) -> None:
    say(f"{what} ...")
    began = time.monotonic()
    work()
    say(f"{what}: done in {time.monotonic() - began:.1f} s")


def wanted_stamp() -> str:
    """What the environment must be made from: the lock file, the project's metadata and this Python."""
    digest = hashlib.sha256()
    for name in ("requirements.lock", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    digest.update(sys.version.encode())
    return digest.hexdigest()


def is_current() -> bool:
    return PYTHON.exists() and STAMP.exists() and STAMP.read_text().strip() == wanted_stamp()


def installer() -> Installer:
    uv = shutil.which("uv")
    if uv and succeeds([uv, "--version"]):
        pip = (uv, "pip", "install", "--quiet", "--python", str(PYTHON))
        return Installer("uv", (uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(VENV)), pip)
    pip = (str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    return Installer("pip", (sys.executable, "-m", "venv", "--clear", str(VENV)), pip)


def make_environment() -> None:
    found = installer()
    if not is_usable(found):
        if found.name == "pip":
            servers.ensure_venv_module(say)
        timed("making .venv", lambda: run(found.create, "the environment could not be made"))
    STAMP.unlink(missing_ok=True)
    problem = "a package could not be installed; is a package index reachable?"
    timed(
        f"installing the packages of requirements.lock with {found.name}",
        lambda: run([*found.install, "--require-hashes", "-r", "requirements.lock"], problem),
    )
    # by a call of its own: a checkout has no digest
    timed("installing this checkout", lambda: run([*found.install, "--no-deps", "--editable", "."], problem))
    STAMP.write_text(wanted_stamp() + "\n")


def is_usable(found: Installer) -> bool:
    """Whether what is in .venv runs, is of this Python's version, and can install."""
    question = "import sys; sys.stdout.write(sys.version)"
    answer = (
        subprocess.run([PYTHON, "-c", question], capture_output=True, text=True) if PYTHON.exists() else None
    )
    return answer is not None and answer.stdout == sys.version and succeeds([*found.install, "--help"])


def ensure_java() -> None:
    """Java from the package index, where the system has none and may not be asked for one."""
    if java.find_program() is None:
        found = installer()
        problem = "no Java could be installed; install one (17 or newer) and set JAVA_HOME"
        timed(
            "installing Java into .venv",
            lambda: run([*found.install, "--require-hashes", "-r", "tools/java.lock"], problem),
        )


def succeeds(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def run(command: Sequence[str], problem: str) -> None:
    """Run it quietly; when it fails, say what it said."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise BootstrapFailed(f"{problem}\n$ {' '.join(command)}\n{done.stdout.strip()}")


def prepare(command: str) -> None:
    (ROOT / "var").mkdir(exist_ok=True)
    with (ROOT / "var" / "bootstrap.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second ./dev waits until the first has installed
        needs_servers = command in WITH_SERVERS and not os.environ.get("ARKLINE_ZK_HOSTS")
        if needs_servers:
            servers.ensure_zookeeper(say)
        if not is_current():
            make_environment()
        if needs_servers:
            ensure_java()


def main(arguments: list[str]) -> None:
    command = arguments[0] if arguments else ""
    if command not in COMMANDS:
        asked = command in ("", "-h", "--help", "help")
        print(USAGE, file=sys.stdout if asked else sys.stderr)
        sys.exit(0 if asked else 2)
    os.chdir(ROOT)
    try:
        prepare(command)
    except (BootstrapFailed, servers.CannotInstall) as error:
        say(f"error: {error}")
        sys.exit(3)
    except KeyboardInterrupt:
        sys.exit(130)
    os.execv(PYTHON, [str(PYTHON), "-m", "entrypoints.dev", *arguments])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])
