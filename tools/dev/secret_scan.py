"""Finds secrets that must not be in the tree: keys and tokens in their issuers' formats."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tools.checkout import PROJECT

FORMS = {
    "a private key": re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    "an AWS access key": re.compile(rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    "a GitHub token": re.compile(rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22,})"),
    "a GitLab token": re.compile(rb"\bglpat-[A-Za-z0-9_-]{20}"),
    "a PyPI token": re.compile(rb"\bpypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{20,}"),
    "a Slack token": re.compile(rb"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    "a Google key": re.compile(rb"\bAIza[A-Za-z0-9_-]{35}\b"),
    "a JSON web token": re.compile(rb"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}"),
    "a password in a URL": re.compile(rb"https?://[A-Za-z0-9._-]+:[A-Za-z0-9+/_-]{24,}@"),
}
"""Kind of secret -> its format. A secret without a distinctive format cannot be found."""


def complaints() -> str:
    """One line per secret in the files that git tracks or would add; empty if there are none."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=PROJECT,
        capture_output=True,
        check=False,
    )
    names = sorted(name for name in listed.stdout.decode().split("\0") if name)
    return "\n".join(line for name in names for line in in_file(PROJECT / name))


def in_file(path: Path) -> Iterator[str]:
    if not path.is_file():
        return
    data = path.read_bytes()
    for what, form in FORMS.items():
        for match in form.finditer(data):
            number = data.count(b"\n", 0, match.start()) + 1
            yield f"{path.name}:{number}: has {what}: remove it, and have it withdrawn where it is valid"
