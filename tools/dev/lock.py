"""`./dev lock`: the lock files, for every platform, with digests and without addresses."""

import shutil
import subprocess
import tomllib

from rich.console import Console

from pipeline.errors import ArklineError, ServiceUnreachable
from tools.checkout import PROJECT
from tools.dev.checks import lock_complaints


def extras() -> set[str]:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return set(project["optional-dependencies"])


INSTALLED = "requirements.lock"
"""The packages allowed in an installation, the image and a release; the tests have their own file."""

NOT_INSTALLED = frozenset({"conformance", "test"})
"""The extras of whoever runs tests: those of a checkout, and those of a site's own backends."""

LOCKS = {
    INSTALLED: ("pyproject.toml", *(f"--extra={name}" for name in sorted(extras() - NOT_INSTALLED))),
    "tools/test.lock": ("pyproject.toml", "--all-extras", "--constraint", INSTALLED),
    "tools/installer.lock": ("tools/installer.in",),
    "tools/java.lock": ("tools/java.in",),
    "tools/kazoo_tests.lock": ("tools/kazoo_tests.in", "--no-emit-package=twofish"),
}
"""Lock file -> its source, in the order of writing. Java (35 MB) and uv (25 MB) have their own files,
because few machines need them. twofish, which is unused here, would need a compiler."""

LOWEST_PYTHON = "3.11"


class LockFailed(ArklineError):
    """A lock file could not be written."""


def lock(console: Console) -> int:
    uv = shutil.which("uv")
    if uv is None:
        raise ServiceUnreachable("uv was not found; it resolves for all platforms at once: pip install uv")
    for name, sources in LOCKS.items():
        options = ("--universal", "--python-version", LOWEST_PYTHON, "--generate-hashes", "--quiet")
        layout = ("--no-header", "--no-annotate", "--output-file", name)
        done = subprocess.run(
            [uv, "pip", "compile", *options, *layout, *sources],
            cwd=PROJECT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        complaints = done.stderr if done.returncode else lock_complaints(PROJECT / name)
        if complaints:
            raise LockFailed(f"{name}: {complaints.strip()}")
        console.print(f"{name} is up to date", markup=False)
    return 0
