"""The commands that the pages show, executed in the shell that the pages describe.

One stack serves all pages. The commands of a page run in one shell, in the order of the page.
"""

import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from entrypoints.stack.home import StackInfo, environment_path, read_info, running_pid
from tests.servers.http_source import HttpSource

pytestmark = pytest.mark.timeout(1200)  # a slow machine starts about fifty commands

PROJECT = Path(__file__).parents[2]
HARBOUR = PROJECT / "examples" / "harbour" / "lighthouse"
FIRST = ("README.md", "docs/depositors.md", "docs/operators/profiles.md", "docs/operators/runbook.md")
"""In this order: later pages use the deposits, the profile and the failed jobs."""
LAST = "docs/operators/install.md"
"""It ends with the command that stops the stack."""

COMMAND_SECONDS = 120

NOT_RUN = {
    "docker ": "needs Docker; tests/e2e/test_deployment.py reads the compose file",
    "helm ": "needs Helm and a cluster; tests/e2e/test_deployment.py reads the chart",
    "sudo ": "changes the machine; tests/e2e/test_deployment.py reads the units",
    "pip install ": "tests/e2e/test_wheel.py installs the wheel",
    "arkline standalone start ": "a second stack; tests/e2e/test_wheel.py starts it",
    "arkline watch": "ends at Ctrl-C; tests/integration/test_watch_remote.py runs it",
    "arkline restore ": "needs a fleet that is stopped; tests/e2e/test_restore_drill.py runs it",
    "./dev up --detach": "has started the stack of this test",
    "./dev demo": "tests/e2e/test_demo.py runs it",
    "./dev test": "this test is a part of it",
    "./dev check": "CI runs it",
    "ARKLINE_ZK_": "settings of a site, no command",
    "ARKLINE_BROKER_URL=rediss": "a setting of a site, no command",
}
"""The beginning of a command -> why it is not run here."""

FAILED_JOBS = """
arkline pause --reason "the inventory is away"
bid=$(arkline submit three --object-per-file --profile demo)
until arkline jobs --batch "$bid" | grep -o '^jid[0-9]*' > jids && [ "$(wc -l < jids)" = 3 ]; do :; done
for jid in $(sort jids); do arkline fail "$jid" --reason "the inventory is away"; done
arkline unpause
arkline watch "$bid" || [ $? = 1 ]
echo "$bid" > bid
"""
"""A failed batch of three failed jobs, for the pages about failures; the files `bid` and `jids` name them."""


def commands(page: Path) -> list[str]:
    """The commands of the page's shell blocks; of the README also those of its tables."""
    found: list[str] = []
    fence: str | None = None
    for line in page.read_text().replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fence = line.removeprefix("```") if fence is None else None
        elif fence == "sh":
            found.append(re.sub(r"(^|\s+)#.*", "", line))
        elif fence == "console" and line.startswith("$ "):
            found.append(line.removeprefix("$ "))
        elif fence is None and page.name == "README.md" and line.startswith("|"):
            found += re.findall(r"`(arkline [^`]+)`", line)
    return [command for command in found if command.strip()]


PAGES = {
    str(page.relative_to(PROJECT)): found
    for page in sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
    if page.name != "CHANGELOG.md" and "decisions" not in page.parts and (found := commands(page))
}


def in_order() -> list[str]:
    middle = [page for page in PAGES if page not in (*FIRST, LAST)]
    return [*FIRST, *middle, LAST]


@dataclass
class Shell:
    """A bash that has read the environment file of the stack, in the reader's folder."""

    process: subprocess.Popen[str]
    said: str = ""
    """The output of the last command, that of standard error included."""

    def run(self, command: str) -> int:
        """Run the command to its end; its exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\nprintf '\\n=ended= %s\\n' $?\n")
        self.process.stdin.flush()
        self.said = ""
        deadline = time.monotonic() + COMMAND_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not (ended := re.search(r"\n=ended= (\d+)\n$", self.said)):
                assert selector.select(max(0, deadline - time.monotonic())), f"{command}: {self.said}"
                data = os.read(self.process.stdout.fileno(), 1 << 16).decode()
                assert data, f"{command} ended the shell: {self.said}"
                self.said += data
        self.said = self.said[: ended.start()]
        return int(ended[1])


@dataclass(frozen=True)
class Site:
    """The stack, a folder with what a reader has, and a server with what is on the web."""

    info: StackInfo
    home: Path
    folder: Path
    source: HttpSource

    @contextmanager
    def shell(self) -> Iterator[Shell]:
        path = os.pathsep.join((str(self.folder / "bin"), os.environ["PATH"]))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ARKLINE_")}
        with subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.folder,
            env={**kept, "PATH": path, "CURL_HOME": str(self.folder), "NO_PROXY": "127.0.0.1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                shell = Shell(process)
                assert shell.run(f". {environment_path(self.home)}") == 0
                yield shell
            finally:
                process.kill()

    def real(self, page: str, command: str, said: str) -> str:
        """The command with real things in the place of the page's placeholders; `said`: the last output."""
        (self.folder / "jids").touch()
        jids = sorted((self.folder / "jids").read_text().split())
        environment = str(environment_path(self.home))
        placeholders: dict[str, str | Callable[[], str]] = {
            ". .venv/bin/activate && . var/run/environment": f". {environment}",
            "~/.local/share/arkline/run/environment": environment,
            "/backups/2026-11-22": "backup",
            "http://library.example.org": self.source.url(""),
            "https://example.org": self.source.url(""),
            "https://ingest.example.org": self.info.web_url.rstrip("/"),
            "ark_...": self.info.token,
            "upload:ID/": lambda: re.findall(r"upload:\w+/", said)[-1],
            '"token": "..."': lambda: re.findall(r'"token": ?"[^"]+"', said)[-1],
            "ark:/99999/fk4abc": "ark:/99999/fk4000000019",
            "jid0000000007": jids[1] if jids else "",
            "-N ": "-N --max-time 3 ",  # the stream has no end
        }
        if page == "docs/operators/runbook.md":
            placeholders |= {
                "jid0000000001": jids[0],
                "bid0000000001": (self.folder / "bid").read_text().strip(),
            }
        for placeholder, thing in placeholders.items():
            if placeholder in command:
                command = command.replace(placeholder, thing if isinstance(thing, str) else thing())
        return command


def write_folder(folder: Path, source: HttpSource) -> None:
    """What the pages take for granted: a reader's files, and files on the web."""
    shutil.copytree(HARBOUR, folder / "examples" / "harbour" / "lighthouse")
    shutil.copytree(HARBOUR, folder / "photos", ignore=shutil.ignore_patterns("*.checkm"))
    shutil.copytree(folder / "photos", folder / "three")
    for name in ("photo.tif", "South light.jpg"):
        shutil.copy(HARBOUR / "light.svg", folder / name)
    shutil.copytree(PROJECT / "examples" / "profiles", folder / "profiles")
    for file in (folder / "photos").iterdir():
        source.put(f"/{file.name}", file)
    packed = shutil.make_archive(str(folder / "harbour"), "zip", folder / "photos")
    source.put("/harbour.zip", Path(packed))
    listed = (HARBOUR / "object.checkm").read_text().replace("{base}/lighthouse", source.url(""))
    source.put("/photos.checkm", listed.encode())
    (folder / ".curlrc").write_text("fail-with-body\nmax-time = 60\n")  # an error of HTTP is one of curl
    program = folder / "bin" / "arkline"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m arkline "$@"\n')
    program.chmod(0o755)


def dev(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.dev", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=280
    )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    home, folder = tmp_path / "var", tmp_path / "reader"
    folder.mkdir()
    with HttpSource() as source:
        write_folder(folder, source)
        try:
            started = dev(
                *("up", "--detach", f"--home={home}"),
                ARKLINE_ALLOW_NETWORKS="127.0.0.0/8",
                ARKLINE_PROFILES=str(folder / "profiles"),
            )
            assert started.returncode == 0, started.stderr
            info = read_info(home)
            assert info is not None
            yield Site(info, home, folder, source)
        finally:
            dev("down", f"--home={home}")


def is_run(command: str) -> bool:
    return not any(command.startswith(beginning) for beginning in NOT_RUN)


def test_every_command_that_is_not_run_is_on_a_page() -> None:
    shown = [command for found in PAGES.values() for command in found]

    gone = [name for name in NOT_RUN if not any(command.startswith(name) for command in shown)]
    assert gone == []


@pytest.mark.usefixtures("zookeeper", "redis_server")  # skipped where these cannot run
def test_the_commands_of_the_pages_work_in_the_shell_of_the_stack(site: Site) -> None:
    refused = []
    for page in in_order():
        with site.shell() as shell:
            if page == "docs/operators/runbook.md":
                assert shell.run(FAILED_JOBS) == 0, shell.said
            for command in filter(is_run, PAGES[page]):
                code = shell.run(site.real(page, command, shell.said))
                if code and not (code == 28 and "event: " in shell.said):  # curl: the stream was cut
                    refused.append(f"{page}: {command}\nexit code {code}: {shell.said}")

    assert refused == []
    assert running_pid(site.home) is None
