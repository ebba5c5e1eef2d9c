"""Build the wheel, and check it in an empty environment outside the checkout."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.request import Request, urlopen

from pipeline.errors import ArklineError, ServiceUnreachable
from tools.checkout import PROJECT, VENV
from tools.web_server import serving

SHIPPED = frozenset(
    {"arkline.py", "celeryconfig.py", "entrypoints", "operations", "pipeline", "plugins", "tasks", "zkstate"}
)
"""What a wheel contains besides its metadata; tools, tests and benchmarks belong to a checkout."""

MANUAL = "share/man/man1/arkline.1"
"""The manual page's path below an installation's prefix."""

SOURCE_PATHS = (*sorted(SHIPPED), "pyproject.toml", "README.md", "LICENSE")


class CheckFailed(ArklineError):
    """The wheel is not fit for release; the message says why."""


def find_uv() -> str:
    own = VENV / "bin" / "uv"
    uv = str(own) if own.exists() else shutil.which("uv")
    if uv is None:
        raise ServiceUnreachable("uv was not found; it is needed to build and install wheels: pip install uv")
    return uv


def build(target: Path, scratch: Path) -> Path:
    """Build the wheel and the source archive into `target`; returns the wheel's path.

    Built from a copy in `scratch`, so that no old build folder gets into the wheel.
    """
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCE_PATHS:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, scratch / name, ignore=ignored)
        else:
            shutil.copy(source, scratch / name)
    known = ("--build-constraints", PROJECT / "tools" / "build.lock", "--require-hashes")
    _run([find_uv(), "build", "--quiet", *known, "--out-dir", target, scratch], scratch)
    (wheel,) = target.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Installed:
    """A wheel installed in its own environment; its commands run in `folder`."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    venv: Path | None = None
    """The environment, if it is not in `folder`."""

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of the environment; returns its standard output, or raises CheckFailed."""
        programs = (self.venv or self.folder / "venv") / "bin"
        return _run([programs / program, *arguments], self.folder, self.environment)


def install(wheel: Path, folder: Path, *extras: str) -> Installed:
    """Install the wheel, with the versions in requirements.lock, into a new environment in `folder`."""
    uv, venv = find_uv(), folder / "venv"
    _run([uv, "venv", "--quiet", "--python", sys.executable, venv], folder)
    lock = PROJECT / "requirements.lock"
    to = ("--python", venv / "bin" / "python")
    _run(
        [
            uv,
            "pip",
            "install",
            "--quiet",
            *to,
            "--constraint",
            lock,
            f"arkline[{','.join(('standalone', *extras))}] @ {wheel.as_uri()}",
        ],
        folder,
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ARKLINE_", "PYTHON"))}
    return Installed(folder, clean)


def install_guest(installed: Installed, guest: Path) -> Installed:
    """Install the guest's package too; its programs run in `guest`."""
    venv = installed.folder / "venv"
    known = ("--build-constraints", PROJECT / "tools" / "build.lock")
    to = ("--quiet", "--no-deps", "--python", venv / "bin" / "python")
    _run([find_uv(), "pip", "install", *known, *to, guest], installed.folder)
    return Installed(guest, installed.environment, venv)


def check_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.split("/")[0] for name in names}
    strangers = {name for name in top if not name.endswith((".dist-info", ".data"))} ^ SHIPPED
    data = {name.partition(".data/")[2] for name in names} - {""}
    if strangers := strangers | (data ^ {f"data/{MANUAL}"}):
        raise CheckFailed(f"{wheel.name} has too much or too little: {', '.join(sorted(strangers))}")


def check_commands(installed: Installed, version: str) -> None:
    """Check that the command and the import work, and state the version."""
    for arguments in (("--help",), ("standalone", "--help"), ("submit", "--help")):
        installed.run("arkline", *arguments)
    spoken = {
        installed.run("arkline", "--version").strip(),
        installed.run("python", "-c", "import arkline; print('arkline', arkline.__version__)").strip(),
    }
    if not (installed.folder / "venv" / MANUAL).is_file():
        raise CheckFailed(f"the wheel does not install {MANUAL}")
    if spoken != {f"arkline {version}"}:
        raise CheckFailed(f"the wheel says {', '.join(sorted(spoken))} and not arkline {version}")


def check_ingest(installed: Installed) -> str:
    """Start a standalone stack, submit a file, and wait until it is completed; returns the batch's id."""
    content = installed.folder / "content"
    content.mkdir()
    (content / "hello.txt").write_text("A small file.\n")
    with standalone(installed) as user, serving(content) as base:
        view = user.run("arkline", "submit", "--profile=demo", f"{base}/hello.txt", "--wait", "--json")
    batch = json.loads(view)
    if batch["status"] != "completed":
        raise CheckFailed(f"{batch['bid']} is {batch['status']}: {batch['message']}")
    return str(batch["bid"])


@contextmanager
def standalone(installed: Installed, **variables: str) -> Iterator[Installed]:
    """Run a stack of the wheel with these variables; yields the environment of its users."""
    home = f"--home={installed.folder / 'home'}"
    allowed = {**installed.environment, "ARKLINE_ALLOW_NETWORKS": "127.0.0.0/8", **variables}
    starter = replace(installed, environment=allowed)
    starter.run("arkline", "standalone", "start", "--detach", "--workers=1", home)
    try:
        info = json.loads((installed.folder / "home" / "run" / "stack.json").read_text())
        _check_web(info["web_url"], info["token"])
        yield replace(installed, environment={**installed.environment, **info["environment"]})
    finally:
        installed.run("arkline", "standalone", "stop", home)


def _check_web(url: str, token: str) -> None:
    request = Request(f"{url}v1", headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - our own
    with urlopen(request, timeout=30) as answer:  # noqa: S310 - our own address
        caller = json.load(answer)["caller"]
    if caller["role"] != "operator":
        raise CheckFailed(f"the stack's token is not an operator's: {caller}")


def _run(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        words = " ".join(map(str, command))
        raise CheckFailed(f"$ {words}\ncode {done.returncode}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout
