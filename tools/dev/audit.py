"""`./dev audit`: known faults in the packages of requirements.lock, asked for at the Python package index."""

import subprocess

import requests
from rich.console import Console

from tools.checkout import PROJECT
from tools.dev.wheel import find_uv

PIP_AUDIT = "pip-audit==2.10.1"
"""From PyPA. It is run in an environment of its own, because nothing else needs its dependencies."""

INDEX = "https://pypi.org/pypi/pip/json"
"""Where known faults are asked for."""

LOCKS = ("requirements.lock", "tools/build.lock", "tools/installer.lock", "tools/java.lock")

SECONDS = 10.0
"""In which the index has to answer."""


def audit(console: Console) -> int:
    """1 if a locked package has a known fault; 0 if none has, or if the network does not allow to ask."""
    if reason := unreachable():
        console.print(f"skipped: {reason}", markup=False)
        return 0
    worst = 0
    for name in LOCKS:
        done = subprocess.run(command(find_uv(), name), cwd=PROJECT, check=False)
        result = "a problem, see above" if done.returncode else "no known fault"
        console.print(f"{name}: {result}", markup=False)
        worst = max(worst, done.returncode)
    return 1 if worst else 0


def unreachable() -> str:
    """Why nothing can be asked; empty if the index answers."""
    try:
        requests.get(INDEX, timeout=SECONDS).raise_for_status()
    except requests.RequestException as error:
        return f"{INDEX} does not answer ({type(error).__name__}); ask again where the network allows it"
    return ""


def command(uv: str, name: str) -> list[str]:
    """The files name every package with its digests, so that nothing is resolved or built."""
    own = (uv, "tool", "run", "--quiet", "--from", PIP_AUDIT, "pip-audit")
    return [*own, "--requirement", name, "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
