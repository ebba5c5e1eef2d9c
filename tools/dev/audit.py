"""`./dev audit`: checks the locked packages for known vulnerabilities with PyPA's pip-audit."""

import json
import subprocess

from rich.console import Console

from tools.checkout import PROJECT
from tools.dev.wheel import find_uv

PIP_AUDIT = "pip-audit==2.10.1"
"""Run in its own environment, because nothing else needs its dependencies; installed from the index that
pip is configured with."""

LOCKS = ("tools/test.lock", "tools/build.lock", "tools/installer.lock", "tools/java.lock")
"""tools/test.lock has all packages of requirements.lock."""


def audit(console: Console) -> int:
    """1 if a locked package has a known vulnerability; 0 if none is known, or if no query was possible."""
    worst = 0
    for name in LOCKS:
        done = subprocess.run(
            command(find_uv(), name), cwd=PROJECT, capture_output=True, text=True, check=False
        )
        faults, result = judge(done.stdout, done.stderr)
        for fault in faults:
            console.print(f"{name}: {fault}", markup=False)
        console.print(f"{name}: {result}", markup=False)
        worst |= bool(faults)
    return worst


def judge(output: str, errors: str) -> tuple[list[str], str]:
    """The vulnerabilities, one per line, and a summary, from pip-audit's output."""
    try:
        packages = json.loads(output)["dependencies"]
    except ValueError:
        *_, last = errors.strip().splitlines() or ["pip-audit said nothing"]
        return [], f"skipped: {last}; ask again where the network allows it"
    faults = [
        f"{package['name']} {package['version']}: {', '.join(fault['id'] for fault in package['vulns'])}"
        for package in packages
        if package.get("vulns")
    ]
    unknown = sum("skip_reason" in package for package in packages)
    asked = f"{len(packages) - unknown} of {len(packages)} packages could be asked for"
    return faults, f"{asked}, {len(faults) or 'no'} known to have a fault"


def command(uv: str, name: str) -> list[str]:
    """The lock files name every package with its digests, so nothing is resolved or built."""
    own = (uv, "tool", "run", "--quiet", "--from", PIP_AUDIT, "pip-audit", "--format", "json")
    return [*own, "--requirement", name, "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
