"""The commands that the pages show, executed in the shell that the pages describe.

One stack serves all pages. The commands of a page run in one shell, in the order of the page.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from entrypoints.stack.home import environment_path, running_pid
from tests.support.pages import commands
from tests.support.polling import eventually
from tests.support.stack_shell import PROJECT, Site, started

pytestmark = pytest.mark.timeout(1200)  # a slow machine starts about fifty commands

FIRST = ("README.md", "docs/depositors.md", "docs/operators/profiles.md", "docs/operators/runbook.md")
"""In this order: later pages use the deposits, the profile and the failed jobs."""
LAST = "docs/operators/install.md"
"""It ends with the command that stops the stack."""

NOT_RUN = {
    "docker ": "needs Docker; ./dev containers runs the compose file",
    "arkline() ": "needs Docker; ./dev containers executes the page",
    "helm ": "needs a cluster; ./dev containers plays the pods of the chart",
    "sudo ": "changes the machine; tests/unit/test_systemd.py reads the units",
    "pip install ": "tests/e2e/test_wheel.py installs the wheel",
    "arkline standalone start ": "a second stack; tests/e2e/test_wheel.py starts it",
    "celery -A arkline events": "ends at Ctrl-C; tests/e2e/test_task_events.py listens",
    "celery -A arkline worker": "ends at Ctrl-C; tests/e2e/test_celery_commands.py runs it",
    "celery -A arkline beat": "ends at Ctrl-C; tests/e2e/test_celery_commands.py runs it",
    "celery -A arkline flower": "ends at Ctrl-C; tests/e2e/test_celery_commands.py runs it",
    "arkline watch": "ends at Ctrl-C; tests/integration/test_watch_remote.py runs it",
    "arkline approve ": "needs a job in review; tests/e2e/test_printed_remedies.py has one",
    "arkline reject ": "needs a job in review; tests/e2e/test_printed_remedies.py has one",
    "arkline doctor": "the exit code is that of its faults; tests/integration/test_doctor.py runs it",
    "kubectl ": "needs a cluster",
    "arkline restore ": "needs a fleet that is stopped; tests/e2e/test_restore_drill.py runs it",
    "./dev up --detach": "has started the stack of this test",
    "./dev demo": "tests/e2e/test_demo.py runs it",
    "./dev test": "this test is a part of it",
    "./dev check": "CI runs it",
    "python -m ": "tests/integration/test_adding_a_step.py runs it",
    "ARKLINE_ZK_": "settings of a site, no command",
    "ARKLINE_BROKER_URL=rediss": "a setting of a site, no command",
    "ARKLINE_INVENTORY_URL=": "a setting of a site, no command",
    "arkline certificates renew ": "writes into /etc; tests/integration/test_certificates_command.py runs it",
}
"""The beginning of a command -> why it is not run here."""

STORED = r"jobs +1 completed\n(.|\n)* ark:/99999/fk4\d+\w  completed"
SAYS = {
    "celery -A arkline status": "OK",
    "celery -A arkline inspect active": "OK",
    "celery -A arkline inspect registered": r"job\.downloading",
    "celery -A arkline --config celeryconfig inspect active_queues": "download",
    'arkline submit photos/ --profile demo --what "South Mole light" --dry-run': (
        "nothing was submitted\n(.|\n)*objects +1, of which 0 would"
    ),
    "arkline submit http://library.example.org/photos.checkm": "files +3, 1.6 kB",
    "arkline submit": STORED,
    "arkline status bid0000000001": "jobs +1 completed\n(.|\n)*collection +demo\n",
    "arkline status": "health +ok\n",
    "arkline why jid0000000001": r"The object is stored as ark:/99999/fk4\w+ and recorded in the inventory\.",
    "arkline timeline jid0000000001": "estimating (.|\n)*downloading (.|\n)*processing (.|\n)*recording ",
    "arkline history bid0000000001": "split|processing|acquire",
    "arkline jobs --state failed": "^job +state ",
    "arkline report bid0000000001": r"^bid0000000001: 1 of 1 object completed\.",
    "arkline objects -o name": r"(?m)^ark:/99999/fk4\w+$",
    "arkline objects ": "South Mole light",
    "arkline object MUE-003": r"^ark:/99999/fk4\w+\n(.|\n)*version 1, 13 files",
    "arkline object ark:": r"^ark:/99999/fk4\w+\n(.|\n)*version 1, 13 files",
    "arkline export ark:": "is a bag in .*: 13 files, [0-9.]+ kB, verified",
    "arkline fixity report": r"objects +1 in the schedule\n(.|\n)*No damage is known\.",
    "arkline manifest check http://library.example.org/photos.checkm": "object-manifest of 3 rows, good",
    "arkline manifest check --profile demo": "object-manifest of 3 rows, good",
    "arkline profile template": "^$",
    "arkline profile check harbour": "harbour.yaml: profile, good",
    "arkline profile show harbour": "collections +ark:/99999/fk4collection",
    "arkline profile list": "(?m)^harbour ",
    "arkline resume jid0000000001": "jid[0-9]+ was failed, is now pending",
    "arkline resume --batch bid0000000001 --dry-run": "resume: 2 would be done",
    "arkline update-report bid0000000001": "was failed, is now update-reporting",
    "arkline token create": r"(?m)^ark_\w+$",
    "arkline login ": r"is logged in as (.|\n)*token from +the login in (.|\n)*role +operator",
    "arkline notify add": "ann@example.org",
    "arkline notify confirm": "(?i)confirmed",
    "arkline whoami": r"role +operator",
    "arkline logout ": "Logged out from http",
    "arkline support-bundle": r"arkline-support-\S+\.tar\.gz: \d+ files, ",
    "arkline backup": r"[1-9]\d* batches and [1-9]\d* jobs of deployment ",
    "arkline check": r"agree: [1-9]\d* versions and jobs compared",
    "arkline standalone stop": "^Stopped after ",
    "curl -T photo.tif": '"name":"photo.tif","size":858,"complete":true',
    "curl -X POST -T": '"name":"South light.jpg","size":858,"complete":true',
    """curl -H "Content-Type: application/json" -d '{"host""": '"user_code":"[A-Z-]+"',
    """curl -H "Content-Type: application/json" -d '{"device_code""": '"error":"authorization_pending"',
    "curl ": '"(bid|version)":',
    "api -N ": "event: open",
    "api -G ": '"title":"South Mole light"',
    "api -OJ ": "^$",
    "api -C ": "^$",
    'api -X POST "$ARKLINE_URL/v1/jobs/jid0000000007/resume': '"was":"failed","now":"pending"',
    'api -X POST "$ARKLINE_URL/v1/objects': '"state":"(running|waiting|done|ended|ok)',
    'api "$ARKLINE_URL/v1/bulk/resume/dry-run': '"jobs":1,',
    'api "$ARKLINE_URL/v1/bulk/resume"': '"was":"failed","now":"pending"',
    'api "$ARKLINE_URL/v1/batches/bid0000000001/report?form=html': "1 of 1 object completed",
    'api "$ARKLINE_URL/v1/batches/bid0000000001/report?form=csv': '"completed"',
    "api ": '"(bid|reason)":',
}
"""The beginning of a command -> a pattern of what its page says that it shows; the first that fits counts."""

FAILED_JOBS = """
arkline pause --reason "the inventory is away"
bid=$(arkline submit three --object-per-file --profile demo)
listed() { arkline jobs --batch "$bid" | grep -o "^jid[0-9]*" > jids && [ "$(wc -l < jids)" = 3 ]; }
until listed; do sleep 0.1; done
for jid in $(sort jids); do arkline fail "$jid" --reason "the inventory is away"; done
arkline unpause
arkline watch "$bid" || [ $? = 1 ]
echo "$bid" > bid
"""
"""A failed batch of three failed jobs, for the pages about failures; the files `bid` and `jids` name them."""

RESUMED_JOB = "until arkline jobs --state completed -o name | grep -q {}; do sleep 0.1; done"
"""Waits until the job that the page resumed has ended: only then the report can be sent."""


PAGES = {
    str(page.relative_to(PROJECT)): found
    for page in sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
    if page.name
    not in (
        "CHANGELOG.md",
        "guests.md",  # test_guests executes the page
    )
    and "decisions" not in page.relative_to(PROJECT).parts
    and (found := commands(page))
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
        "--to /backups": "--to .",
        "http://library.example.org": site.source.url(""),
        "https://example.org": site.source.url(""),
        "https://ingest.example.org": site.info.web_url.rstrip("/"),
        "ark_...": site.info.token,
        '"device_code": "..."': lambda: re.findall(r'"device_code":"[^"]+"', said)[-1],
        "upload:ID/": lambda: re.findall(r"upload:\w+/", said)[-1],
        '"token": "..."': lambda: re.findall(r'"token": ?"[^"]+"', said)[-1],
        "ark:/99999/fk4abc": "ark:/99999/fk4000000019",
        "MUE-003": "fk4000000019",
        "müller 1911 img_0": "mole south li",
        "müller img_0": "mole light",
        "producer/harbour.tif": "producer/keeper-log.txt",
        "jid0000000007": jids[1] if jids else "",
        "3f9c21ab8d0e4f75 jrxwm4tsn5zq2aavk7yhd3be": lambda: _confirmation(site),
        "-N ": "-N --max-time 3 ",  # the stream has no end
    }
    if page == "docs/operators/runbook.md":
        placeholders |= {
            "jid0000000001": jids[0],
            "bid0000000001": (site.folder / "bid").read_text().strip(),
        }
    if command.startswith("arkline login "):
        return answered(site, command)
    for placeholder, thing in placeholders.items():
        if placeholder in command:
            command = command.replace(placeholder, thing if isinstance(thing, str) else thing())
    if command.startswith("arkline update-report "):
        return f"{RESUMED_JOB.format(jids[0])}\n{command}"
    return command


def _confirmation(site: Site) -> str:
    """The subscription and the code in the mail that asks for it; without a mail server mails are files."""

    def code() -> str | None:
        mails = "\n".join(mail.read_text() for mail in site.settings.outbox_folder.rglob("*.eml"))
        return next(iter(re.findall(r"arkline notify confirm (\w+ \w+)", mails)), None)

    return eventually(code)


def answered(site: Site, command: str) -> str:
    """The login, in a new configuration, and the yes of the stack's operator at the page."""
    url = site.info.web_url.rstrip("/")
    return f"""
export XDG_CONFIG_HOME="$(mktemp -d -p "$PWD")"  # a login that still holds asks for no code
rm -f asked  # of an earlier login
{re.sub(r"https://[a-z.]+", url, command)} > told 2> asked &
until grep -q '[A-Z]\\{{4\\}}-[A-Z]\\{{4\\}}' asked; do sleep 0.1; done
curl -sS -H "Authorization: Bearer {site.info.token}" -d answer=yes \\
  -d code="$(grep -o '[A-Z]\\{{4\\}}-[A-Z]\\{{4\\}}' asked)" {url}/login/device
wait $! && cat told"""


def promised(command: str) -> str:
    """The pattern of what the command shows; a command that changes the shell alone shows nothing."""
    if command.startswith((". ", "export ", "api() ")):
        return "^$"
    return next(pattern for beginning, pattern in SAYS.items() if command.startswith(beginning))


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


def test_every_command_that_is_run_has_a_pattern_of_what_it_shows() -> None:
    run = [command for found in PAGES.values() for command in found if is_run(command)]

    assert {pattern for command in run if (pattern := promised(command))} <= {"^$", *SAYS.values()}
    assert [name for name in SAYS if not any(command.startswith(name) for command in run)] == []


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
                elif not re.search(promise := promised(command), shell.said):
                    refused.append(f"{page}: {command}\ndoes not show {promise}: {shell.said}")

    assert refused == []
    assert running_pid(site.home) is None
