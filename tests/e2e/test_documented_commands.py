"""The commands that the pages show, executed in the shell that the pages describe.

One stack serves all pages. The commands of a page run in one shell, in the order of the page.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from entrypoints.stack.home import environment_path, running_pid
from tests.support.stack_shell import PROJECT, Site, started

pytestmark = pytest.mark.timeout(1200)  # a slow machine starts about fifty commands

FIRST = ("README.md", "docs/depositors.md", "docs/operators/profiles.md", "docs/operators/runbook.md")
"""In this order: later pages use the deposits, the profile and the failed jobs."""
LAST = "docs/operators/install.md"
"""It ends with the command that stops the stack."""

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
    "python -m ": "tests/integration/test_adding_a_step.py runs it",
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


def real(site: Site, page: str, command: str, said: str) -> str:
    """The command with real things in the place of the page's placeholders; `said`: the last output."""
    (site.folder / "jids").touch()
    jids = sorted((site.folder / "jids").read_text().split())
    environment = str(environment_path(site.home))
    placeholders: dict[str, str | Callable[[], str]] = {
        ". .venv/bin/activate && . var/run/environment": f". {environment}",
        "~/.local/share/arkline/run/environment": environment,
        "/backups/2026-11-22": "backup",
        "http://library.example.org": site.source.url(""),
        "https://example.org": site.source.url(""),
        "https://ingest.example.org": site.info.web_url.rstrip("/"),
        "ark_...": site.info.token,
        "upload:ID/": lambda: re.findall(r"upload:\w+/", said)[-1],
        '"token": "..."': lambda: re.findall(r'"token": ?"[^"]+"', said)[-1],
        "ark:/99999/fk4abc": "ark:/99999/fk4000000019",
        "jid0000000007": jids[1] if jids else "",
        "-N ": "-N --max-time 3 ",  # the stream has no end
    }
    if page == "docs/operators/runbook.md":
        placeholders |= {
            "jid0000000001": jids[0],
            "bid0000000001": (site.folder / "bid").read_text().strip(),
        }
    for placeholder, thing in placeholders.items():
        if placeholder in command:
            command = command.replace(placeholder, thing if isinstance(thing, str) else thing())
    return command


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with started(tmp_path) as running:
        yield running


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
                code = shell.run(real(site, page, command, shell.said))
                if code and not (code == 28 and "event: " in shell.said):  # curl: the stream was cut
                    refused.append(f"{page}: {command}\nexit code {code}: {shell.said}")

    assert refused == []
    assert running_pid(site.home) is None
