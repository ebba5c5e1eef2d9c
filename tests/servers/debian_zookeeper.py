"""The ZooKeeper of another release of Debian, unpacked without a change to the machine."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.requirements import unavailable
from tools.checkout import VAR
from tools.servers import JAR_PACKAGES, NEEDED_JARS

CACHE = VAR / "cache"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def classpath(codename: str) -> str:
    """A value of ZOOKEEPER_CLASSPATH for that release's ZooKeeper, which apt downloads once.

    The manifest of its zookeeper.jar names the system's jars, of another release perhaps: it comes last.
    """
    folder = CACHE / f"zookeeper-{codename}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            unpacked = _unpacked(codename, Path(place))
            if not folder.is_dir():  # another test process may have been first
                unpacked.rename(folder)
    return os.pathsep.join(str(folder / "lib" / name) for name in reversed(NEEDED_JARS))


def _unpacked(codename: str, place: Path) -> Path:
    for below in ("state/lists/partial", "cache/archives/partial", "root", "home/lib"):
        (place / below).mkdir(parents=True)
    (place / "sources.list").write_text(f"deb [signed-by={KEYS}] {_mirror()} {codename} main\n")
    configuration = place / "apt.conf"
    configuration.write_text(
        f'Dir::Etc::sourcelist "{place}/sources.list";\nDir::Etc::sourceparts "/dev/null";\n'
        f'Dir::State "{place}/state";\nDir::State::status "/dev/null";\nDir::Cache "{place}/cache";\n'
        'APT::Sandbox::User "";\n'
    )
    environment = {**os.environ, "APT_CONFIG": str(configuration)}
    for command in (("apt-get", "update"), ("apt-get", "download", *JAR_PACKAGES)):
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            unavailable(f"{' '.join(command)} of Debian {codename}: {done.stderr.strip()}")
    for package in place.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(place / "root")], check=True)
    for name in NEEDED_JARS:
        shutil.copy(place / "root" / "usr" / "share" / "java" / name, place / "home" / "lib")
    return place / "home"


def _mirror() -> str:
    """The address of the Debian archive that this machine uses."""
    question = ("apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)")
    if shutil.which("apt-get") is None:
        pytest.skip("this system has no packages of Debian")
    said = subprocess.run(question, capture_output=True, text=True, check=False).stdout
    rows = [row.split() for row in said.splitlines()]
    own = [row for row in rows if row[:2] == ["Debian", "Debian"] and len(row) == 3]
    if not own or not KEYS.is_file():
        pytest.skip("this system is not Debian, or apt-get update was never run")
    return own[0][2]
