"""`./dev lock`: the lock files, for every platform, with digests and without addresses."""

import shutil
import subprocess

from rich.console import Console

from pipeline.errors import ArklineError, ServiceUnreachable
from tools.checkout import PROJECT
from tools.dev.checks import lock_complaints

LOCKS = {
    "requirements.lock": ("pyproject.toml", "--all-extras"),
    "tools/installer.lock": ("tools/installer.in",),
    "tools/java.lock": ("tools/java.in",),
}
"""Lock file -> its source. Java (35 MB) and uv (25 MB) have files of their own: few machines need them."""

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
