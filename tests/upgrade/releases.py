"""Earlier releases as they were: their wheels, built from the commits named here, and installed in a folder.

`python -m tests.upgrade.releases 0.3.0` prints the folder: with it as PYTHONPATH, programs are those of that
release. It is kept in the user's cache, outside the checkout.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.checkout import PROJECT
from tools.dev.wheel import find_uv

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arkline" / "releases"


@dataclass(frozen=True)
class Release:
    version: str
    commit: str
    extra: tuple[str, ...] = ()
    """Packages that this release needs and the present one does not."""


BEFORE = Release("0.3.0", "277e85fdc66623c75d852a9a48aaf9c8a29865d1")
"""The release before this one: it runs beside this one, and again after it."""

ANNOUNCED = Release(
    "0.2.1",
    "02078cbb07b4ad014e5cde0dbab98ac5ba6ed8be",
    ("alembic==1.20.1", "httptools==0.9.0", "mako==1.4.3"),
)
"""The newest release whose processes have to be stopped before those of this one start."""


class NotBuilt(Exception):
    """The release cannot be built on this machine; the message says why."""


def installed(release: Release) -> Path:
    """The folder in which the release is installed, with the programs of this environment beside it."""
    # some of its packages are compiled for one version of Python
    target = CACHE / f"{release.version}-{release.commit[:12]}-{sys.implementation.cache_tag}"
    if not target.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            built = _install(release, wheel(release, Path(scratch)), Path(scratch))
            try:
                built.rename(target)  # at once: another process finds all of it, or nothing
            except OSError:
                if not target.is_dir():
                    raise
    return target


def wheel(release: Release, folder: Path) -> Path:
    """The release's wheel, built in `folder` from its commit."""
    archive = _run(["git", "archive", release.commit], PROJECT)
    source = folder / "source"
    source.mkdir()
    subprocess.run(["tar", "-xf", "-", "-C", source], input=archive, check=True)
    known = ("--build-constraints", source / "tools" / "build.lock", "--require-hashes")
    _run([find_uv(), "build", "--quiet", "--wheel", *known, "--out-dir", folder / "dist", source], folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


def _install(release: Release, built: Path, folder: Path) -> Path:
    target = folder / "installed"
    to = ("--quiet", "--no-deps", "--python", sys.executable, "--target", target)
    _run([find_uv(), "pip", "install", *to, built, *release.extra], folder)
    shutil.rmtree(target / "bin", ignore_errors=True)  # its programs would find the packages of this checkout
    return target


def _run(command: Sequence[str | Path], folder: Path) -> bytes:
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    if done.returncode:
        words = " ".join(map(str, command))
        raise NotBuilt(f"$ {words}\n{done.stderr.decode(errors='replace')}".rstrip())
    return done.stdout


if __name__ == "__main__":
    (known,) = (release for release in (BEFORE, ANNOUNCED) if release.version == sys.argv[1])
    sys.stdout.write(f"{installed(known)}\n")
