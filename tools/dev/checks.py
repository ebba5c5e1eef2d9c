"""`./dev check`: all static checks of the tree."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tools.checkout import PROJECT
from tools.dev import secret_scan

BIN = Path(sys.executable).parent
CHECKED = (
    "arkline.py",
    "benchmarks",
    "celeryconfig.py",
    "entrypoints",
    "operations",
    "pipeline",
    "plugins",
    "tasks",
    "tests",
    "tools",
    "zkstate",
)
LOCK_FILES = (
    "requirements.lock",
    "tools/test.lock",
    "tools/build.lock",
    "tools/installer.lock",
    "tools/java.lock",
    "tools/kazoo_tests.lock",
)

SCHEMAS = {
    "compose-spec": "docker-compose.yml",
    "github-workflows": ".github/workflows/*.yml",
}
"""Published schema -> its files; .pre-commit-config.yaml checks the other files of .github."""


@dataclass(frozen=True)
class Check:
    name: str
    run: Callable[[], str]
    """Returns complaints, empty if there are none."""


def check(fix: bool, console: Console) -> int:
    """Run all checks, even after one has complained; 1 if any has."""
    failed = 0
    for check in _checks(fix):
        began = time.monotonic()
        complaints = check.run()
        mark = ("failed", "bold red") if complaints else ("ok", "green")
        console.print(Text.assemble(f"{check.name:<14}", mark, f"  {time.monotonic() - began:.1f} s"))
        if complaints:
            failed += 1
            console.print(Text(complaints))
    return 1 if failed else 0


def _checks(fix: bool) -> list[Check]:
    paths = tuple(path for path in CHECKED if (PROJECT / path).exists())
    return [
        Check("format", _command("ruff", "format", *(() if fix else ("--check",)), *paths)),
        Check("lint", _command("ruff", "check", "--quiet", *(("--fix",) if fix else ()), *paths)),
        Check("types", _command("mypy")),
        Check("imports", _command("lint-imports")),
        Check("lock files", _locks),
        Check("secrets", secret_scan.complaints),
        Check("schemas", _schemas),
    ]


def _command(program: str, *arguments: str) -> Callable[[], str]:
    def run() -> str:
        done = subprocess.run(
            [str(BIN / program), *arguments], cwd=PROJECT, capture_output=True, text=True, check=False
        )
        return (done.stdout + done.stderr).strip() or f"code {done.returncode}" if done.returncode else ""

    return run


def _schemas() -> str:
    complaints = []
    for schema, pattern in SCHEMAS.items():
        files = map(str, PROJECT.glob(pattern))
        complaints.append(_command("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)())
    return "\n".join(filter(None, complaints))


def _locks() -> str:
    return "\n".join(filter(None, (lock_complaints(PROJECT / name) for name in LOCK_FILES)))


def lock_complaints(path: Path) -> str:
    """Complain about addresses in a lock file: an address would bind everyone to one server."""
    lines = enumerate(path.read_text().splitlines(), start=1)
    return "\n".join(
        f"{path.name}:{number}: has an address: {line}" for number, line in lines if "://" in line
    )
