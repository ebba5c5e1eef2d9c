"""`./dev release`: check the version and the changelog, build, check the wheel outside the checkout, tag.

docs/developers/releasing.md has the surrounding steps.
"""

import re
import subprocess
import tempfile
import tomllib
from pathlib import Path

from rich.console import Console

from pipeline.errors import ArklineError
from tools.checkout import PROJECT
from tools.dev import wheel


class NotReady(ArklineError):
    """The checkout is not ready for a release; the message says what to do."""


def project_version() -> str:
    """The version in pyproject.toml, its only source."""
    return str(tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"])


def changelog_section(version: str, text: str) -> str:
    """The changelog section of a version, without its heading; NotReady if it says nothing.

    >>> changelog_section("0.2.0", "## [0.2.0] - 2026-11-22\\n\\n- New.\\n\\n## [0.1.0] - 2026-11-21\\n")
    '- New.'
    """
    heading = re.compile(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$\n(.*?)(?=^## |\Z)", re.M | re.S)
    match = heading.search(text)
    section = match[1].strip() if match else ""
    if not section:
        raise NotReady(
            f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD' with lines: rename Unreleased"
        )
    return section


def release(target: Path, *, tag: bool, console: Console) -> None:
    """Build into `target` and check; with `tag`, also tag the commit, which must be clean."""
    version = project_version()
    notes = ""
    if tag:
        notes = changelog_section(version, (PROJECT / "CHANGELOG.md").read_text())
        _require_clean(version)
    with tempfile.TemporaryDirectory(prefix="arkline-release-") as scratch:
        folder = Path(scratch)
        (folder / "source").mkdir()
        (folder / "installed").mkdir()
        (folder / "dist").mkdir()
        built = wheel.build(folder / "dist", folder / "source")
        _say(console, f"{built.name}: built")
        wheel.check_contents(built)
        installed = wheel.install(built, folder / "installed")
        wheel.check_commands(installed, version)
        _say(console, "installed into an empty environment: its commands work")
        bid = wheel.check_ingest(installed)
        _say(console, f"a standalone stack of it completed {bid}")
        target.mkdir(parents=True, exist_ok=True)
        for path in (folder / "dist").iterdir():
            if path.suffix in (".whl", ".gz"):
                path.replace(target / path.name)
    _say(console, f"the files are in {target}")
    if tag:
        message = f"arkline {version}\n\n{notes}"
        _git("tag", "--annotate", f"v{version}", "--cleanup=verbatim", "--message", message)
        _say(console, f"tagged v{version}; publish it: git push origin v{version}")


def _require_clean(version: str) -> None:
    if changed := _git("status", "--porcelain"):
        raise NotReady(f"commit or remove these files first:\n{changed}")
    if _git("tag", "--list", f"v{version}"):
        raise NotReady(f"the tag v{version} exists: raise the version in pyproject.toml")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReady(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False)
