"""Every remedy that arkline prints, taken from the output and executed in the shell of the stack.

The command is the printed one, word for word; a question is answered with yes, and words in capital letters
are filled. `why` has a case for each of its reasons in tests/integration/test_remedies.py.
"""

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from entrypoints.render.remedies import command
from entrypoints.stack.home import read_info, running_pid
from pipeline.errors import Action, Remedy
from pipeline.storage.ocfl.objects import object_path
from tests.support.polling import eventually
from tests.support.stack_shell import PROJECT, Shell, Site, dev, started
from tests.support.stores import flip, rewrite
from zkstate import paths
from zkstate.connection.session import connect

pytestmark = [
    pytest.mark.timeout(1200),  # a slow machine starts some hundred commands
    pytest.mark.usefixtures("zookeeper", "redis_server"),  # skipped where these cannot run
]

LIMIT = 120.0
"""Seconds until a trouble is shown, or is not shown any more."""

PAUSE = 0.5
"""Seconds between two commands that ask for it: what a command prints is no event."""

NOT_RUN = {
    Action.HOLD_COLLECTION: "a button of the pages, no remedy: no output advises it",
    Action.SHOW_JOBS: "no output advises it any more; a site of an earlier release may",
    Action.SHOW_STATUS: "needs a batch that was archived without a report; README's command is this one",
    Action.CLEAN_UP: "needs a full record: test_the_advice_of_why_works",
    Action.RECONCILE: "needs a record of another time: test_the_advice_of_why_works",
    Action.AUDIT: "needs a sweep that finds nothing: test_the_advice_of_why_works",
    Action.SHOW_REPORT: "needs a mail server that refuses: test_the_advice_of_why_works",
    Action.CHECK_FIXITY: "needs 90 days: test_the_advice_of_why_works",
    Action.RAISE_FIXITY_RATE: "a setting: test_the_advice_of_why_works",
    Action.RAISE_LIMIT: "a setting of ZooKeeper: test_the_advice_of_why_works",
    Action.RAISE_SHARE: "a setting: test_the_advice_of_why_works",
    Action.ADD_SPACE: "a setting: test_the_advice_of_why_works",
    Action.CHANGE_PREFIX: "a setting: test_the_advice_of_why_works",
    Action.CHECK_SETTINGS: "a setting: test_the_advice_of_why_works",
    Action.START_BROKER: "a service of the site: test_the_advice_of_why_works",
    Action.RESTART_BEAT: "needs a beat that hangs: test_the_advice_of_why_works",
    Action.FIX_BROKER: "an act in Redis: test_the_advice_of_why_works",
    Action.RESTORE_INVENTORY: "needs a fleet that is stopped: "
    "test_an_inventory_that_is_older_than_the_backup_is_refused_and_the_remedy_works",
}
"""Remedies that this test does not execute: why, and the test that follows them if there is one."""


@dataclass
class Reader:
    """Somebody in the shell of the stack."""

    site: Site
    shell: Shell

    def run(self, line: str, *codes: int) -> str:
        code = self.shell.run(line)
        assert code in (codes or (0,)), f"{line}\nexit code {code}: {self.shell.said}"
        return self.shell.said

    def advised(self, asked: str, action: Action) -> str:
        """The command of the action, once it is in the output of `asked`."""
        deadline = time.monotonic() + LIMIT
        while not (found := self.printed(asked, action)):
            assert time.monotonic() < deadline, f"{asked} prints no {action}: {self.shell.said}"
            time.sleep(PAUSE)
        return found[0]

    def over(self, asked: str, action: Action) -> None:
        deadline = time.monotonic() + LIMIT
        while self.printed(asked, action):
            assert time.monotonic() < deadline, f"{asked} still prints {action}: {self.shell.said}"
            time.sleep(PAUSE)

    def printed(self, asked: str, action: Action) -> list[str]:
        """The commands of the action in the output of `asked`."""
        self.shell.run(asked)
        words = re.escape(command(Remedy(action, "TARGET"))).replace("TARGET", r"[^\s:`]+")
        words = words.replace("FINDING", r"(?:\w+|'[\w: ]+')")
        return re.findall(rf"(?m)(?:^|[\s`])({words})(?=:\s|`|$)", self.shell.said)

    def follow(self, line: str, *codes: int) -> str:
        """Run the printed command; the question that it may ask is answered with yes."""
        code = self.shell.run(line)
        if "add --yes to confirm" in self.shell.said:
            code = self.shell.run(f"{line} --yes")
        assert code in (codes or (0,)), f"{line}\nexit code {code}: {self.shell.said}"
        return self.shell.said

    def submit(self, payload: str = "three", *options: str) -> str:
        """The BID."""
        said = self.run(" ".join(("arkline submit", payload, "--profile demo", *options)))
        bid: str = re.findall(r"bid\d+", said)[-1]
        return bid

    def job(self, bid: str) -> str:
        deadline = time.monotonic() + LIMIT
        while not (found := re.search(r"^jid\d+", self.run(f"arkline jobs --batch {bid}"), re.MULTILINE)):
            assert time.monotonic() < deadline, f"no job of {bid}"
            time.sleep(PAUSE)
        return found[0]

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.run("arkline pause")
        yield
        self.run("arkline unpause")

    def failed(self) -> tuple[str, str]:
        """The batch, and its only job, which somebody stopped."""
        with self.paused():
            bid = self.submit()
            jid = self.job(bid)
            self.run(f"arkline fail {jid} --reason 'the inventory is away'")
        self.run(f"arkline watch {bid}", 1)
        return bid, jid

    def completed(self, bid: str) -> None:
        self.run(f"arkline watch {bid}")


Case = Callable[[Reader], None]
CASES: dict[Action, Case] = {}


def case(action: Action) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        CASES[action] = function
        return function

    return add


@case(Action.UNPAUSE)
def _paused(reader: Reader) -> None:
    reader.run("arkline pause")
    reader.follow(reader.advised("arkline status", Action.UNPAUSE))
    reader.over("arkline status", Action.UNPAUSE)


@case(Action.RELEASE_COLLECTION)
def _on_hold(reader: Reader) -> None:
    reader.run("arkline hold --collection demo")
    bid = reader.submit()
    reader.follow(reader.advised("arkline status", Action.RELEASE_COLLECTION))
    reader.over("arkline status", Action.RELEASE_COLLECTION)
    reader.completed(bid)


@case(Action.RELEASE)
def _held_after_its_hold(reader: Reader) -> None:
    reader.run("arkline hold --collection demo")
    bid = reader.submit()
    reader.advised(f"arkline why {bid}", Action.RELEASE_COLLECTION)
    reader.run(f"until arkline status {bid} | head -1 | grep -w held; do sleep {PAUSE}; done")
    reader.run("arkline release --collection demo --keep-held")
    reader.follow(reader.advised(f"arkline why {bid}", Action.RELEASE))
    reader.completed(bid)


@case(Action.UNDO_DRAIN)
def _drained(reader: Reader) -> None:
    workers = re.findall(r"^\S+@\S+", reader.run("arkline drain"), re.MULTILINE)
    for worker in workers:
        reader.run(f"arkline drain {worker}")
    reader.advised("arkline status", Action.UNDO_DRAIN)
    while advised := reader.printed("arkline status", Action.UNDO_DRAIN):
        reader.follow(advised[0])
    reader.completed(reader.submit())


@case(Action.SHOW_FAILURES)
def _failed_jobs(reader: Reader) -> None:
    _, jid = reader.failed()
    assert jid in reader.follow(reader.advised("arkline status", Action.SHOW_FAILURES))
    reader.run(f"arkline resume {jid}")


@case(Action.SHOW_REVIEWS)
def _job_in_review(reader: Reader) -> None:
    jid = _reviewed(reader)
    assert jid in reader.follow(reader.advised("arkline status", Action.SHOW_REVIEWS))
    reader.run(f"arkline reject {jid} --reason 'not legible'")


@case(Action.APPROVE)
def _good_content(reader: Reader) -> None:
    jid = _reviewed(reader)
    reader.follow(reader.advised(f"arkline why {jid}", Action.APPROVE))
    reader.run(f"until arkline status {jid} | head -1 | grep -w completed; do sleep {PAUSE}; done")


@case(Action.REJECT)
def _bad_content(reader: Reader) -> None:
    jid = _reviewed(reader)
    reader.follow(reader.advised(f"arkline why {jid}", Action.REJECT))
    assert "failed" in reader.run(f"arkline status {jid}", 1)  # the exit code of a failed job


def _reviewed(reader: Reader) -> str:
    """A job that waits for a review; its batch alone has the profile that asks for one."""
    profile = reader.site.folder / "profiles" / "demo.yaml"
    usual = profile.read_text()
    profile.write_text(f"{usual}review: true\n")
    jid = reader.job(reader.submit())
    reader.run(f"until arkline status {jid} | head -1 | grep -w review; do sleep {PAUSE}; done")
    profile.write_text(usual)
    return jid


@case(Action.RESUME)
def _failed_job(reader: Reader) -> None:
    bid, jid = reader.failed()
    (afterwards,) = reader.printed(f"arkline why {jid}", Action.UPDATE_REPORT)
    reader.follow(reader.advised(f"arkline why {jid}", Action.RESUME))
    reader.run(f"until arkline status {jid} | head -1 | grep -w completed; do sleep {PAUSE}; done")
    reader.follow(afterwards)
    reader.completed(bid)


@case(Action.OVERRULE)
def _job_that_a_finding_stopped(reader: Reader) -> None:
    profile, usual = _checked(reader)
    bid = reader.submit("photo.tif")
    jid = reader.job(bid)
    reader.run(f"arkline watch {bid}", 1)
    assert not reader.printed(f"arkline why {jid}", Action.RESUME)
    reader.follow(reader.advised(f"arkline why {jid}", Action.OVERRULE))
    reader.run(f"until arkline status {jid} | head -1 | grep -w completed; do sleep {PAUSE}; done")
    bid = reader.submit("photo.tif")
    reader.run(f"arkline watch {bid}", 1)
    reader.follow(reader.advised(f"arkline why {bid}", Action.OVERRULE))
    reader.run(f"until arkline status {bid} | grep -w completed; do sleep {PAUSE}; done")
    profile.write_text(usual)


def _checked(reader: Reader) -> tuple[Path, str]:
    """The profile, whose check finds something in every file, and the profile before that."""
    program = reader.site.folder / "scan"
    program.write_text('#!/bin/sh\necho \'{"code": "Every File"}\'\nexit 1\n')
    program.chmod(0o755)
    profile = reader.site.folder / "profiles" / "demo.yaml"
    usual = profile.read_text()
    profile.write_text(f"{usual}checks:\n  - name: every\n    command: [{program}]\n    found: stop\n")
    return profile, usual


@case(Action.RESUME_BATCH)
def _failed_batch(reader: Reader) -> None:
    bid, _ = reader.failed()
    reader.follow(reader.advised(f"arkline why {bid}", Action.RESUME_BATCH))


@case(Action.UPDATE_REPORT)
def _outdated_report(reader: Reader) -> None:
    bid, jid = reader.failed()
    reader.run(f"arkline resume {jid}")
    reader.run(f"until arkline status {jid} | head -1 | grep -w completed; do sleep {PAUSE}; done")
    reader.follow(reader.advised(f"arkline why {bid}", Action.UPDATE_REPORT))
    reader.completed(bid)


@case(Action.RENEW_PROFILE)
def _changed_profile(reader: Reader) -> None:
    bid, jid = reader.failed()
    profile = reader.site.folder / "profiles" / "demo.yaml"
    profile.write_text(f"{profile.read_text()}limits:\n  jobs_at_work: 50\n")
    renew = reader.advised(f"arkline why {jid}", Action.RENEW_PROFILE)
    assert "limits" in reader.follow(renew)
    reader.over(f"arkline why {jid}", Action.RENEW_PROFILE)
    assert bid in renew


@case(Action.SUBMIT_AGAIN)
def _wrong_content(reader: Reader) -> None:
    again = reader.advised(f"arkline why {_without_manifest(reader)}", Action.SUBMIT_AGAIN)
    reader.follow(f"{again.replace('PATH', 'three').replace('NAME', 'demo')} --wait")


@case(Action.DELETE)
def _useless_job(reader: Reader) -> None:
    jid = _without_manifest(reader)
    reader.follow(reader.advised(f"arkline why {jid}", Action.DELETE))
    reader.over(f"arkline why {jid}", Action.DELETE)


def _without_manifest(reader: Reader) -> str:
    """A job whose manifest is none."""
    url = reader.site.source.put("/none.checkm", b"no manifest")
    bid = reader.submit(url, "--type object-manifest")
    reader.run(f"arkline watch {bid}", 1)
    return reader.job(bid)


@case(Action.CANCEL)
def _batch_that_is_not_wanted(reader: Reader) -> None:
    with reader.paused():
        bid = reader.submit()
        reader.job(bid)
        asked = f"arkline fail {bid} --reason 'submitted by mistake'"
        reader.follow(reader.advised(asked, Action.CANCEL))
    reader.run(f"arkline watch {bid}", 1)


@case(Action.REPAIR)
def _damaged_znode(reader: Reader) -> None:
    _, jid = reader.failed()
    with connect(reader.site.settings) as session:
        session.zk.set(paths.configuration(jid), b"{")
    reader.follow(reader.advised(f"arkline why {jid}", Action.REPAIR))
    reader.over(f"arkline why {jid}", Action.REPAIR)


@case(Action.BACK_UP)
def _without_backup(reader: Reader) -> None:
    """The folder is the reader's choice."""
    advised = reader.advised("arkline doctor --quiet", Action.BACK_UP)
    reader.follow(advised.replace("FOLDER", "backups/1"))
    reader.over("arkline doctor --quiet", Action.BACK_UP)


@case(Action.INITIALIZE)
def _without_deployment_id(reader: Reader) -> None:
    """A deployment beside the stack's, on its servers, which no worker has started."""
    reader.run('export ARKLINE_ZK_ROOT=/second ARKLINE_HOME="$PWD/second" ARKLINE_BROKER_PREFIX=second:')
    reader.follow(reader.advised("arkline doctor --quiet", Action.INITIALIZE))
    reader.over("arkline doctor --quiet", Action.INITIALIZE)


@case(Action.FIXITY_REPORT)
def _damaged_file(reader: Reader) -> None:
    said = reader.run("arkline submit three --profile demo --wait")
    ark = re.findall(r"ark:/99999/\w+", said)[-1]
    folder = reader.site.settings.storage / object_path(ark) / "v1" / "content" / "producer"
    path = min(path for path in folder.rglob("*") if path.is_file())
    content = path.read_bytes()
    rewrite(path, flip(content))
    reader.run(f"arkline fixity check {ark}", 4)
    report = reader.advised("arkline status", Action.FIXITY_REPORT)
    assert str(path) in reader.follow(report, 4)
    path.write_bytes(content)
    reader.run(f"arkline fixity check {ark}")
    reader.over("arkline status", Action.FIXITY_REPORT)


@case(Action.SHOW_OBJECTS)
def _unknown_object(reader: Reader) -> None:
    (ark,) = set(re.findall(r"ark:/99999/\w+", reader.run("arkline submit three --profile demo --wait")))
    listed = reader.follow(reader.advised("arkline object ark:/99999/fk4nothere", Action.SHOW_OBJECTS))
    assert ark in listed


@case(Action.SHOW_PROFILES)
def _unknown_profile(reader: Reader) -> None:
    for asked in ("arkline submit three --profile nothere", "arkline profile show nothere"):
        assert "demo" in reader.follow(reader.advised(asked, Action.SHOW_PROFILES))


@case(Action.START_WORKER)
def _no_worker(reader: Reader) -> None:
    with _ended(reader, "worker"):
        reader.advised("arkline status", Action.START_WORKER)
        for number, line in enumerate(reader.printed("arkline status", Action.START_WORKER)):
            reader.run(f"{line} >worker{number}.log 2>&1 &")
        reader.over("arkline status", Action.START_WORKER)
        reader.completed(reader.submit())


@case(Action.START_BEAT)
def _no_beat(reader: Reader) -> None:
    with _ended(reader, "beat"):
        reader.run(f"{reader.advised('arkline status', Action.START_BEAT)} >beat.log 2>&1 &")
        reader.over("arkline status", Action.START_BEAT)


@case(Action.START_RECORD)
def _no_zookeeper(reader: Reader) -> None:
    """What was stopped is the supervisor: it starts ZooKeeper, as its machine's supervisor does."""
    with reader.paused():
        bid = reader.submit()
        reader.job(bid)
        with _ended(reader, "zookeeper"):
            for asked in ("arkline status", "env -u ARKLINE_URL -u ARKLINE_TOKEN arkline status"):
                reader.run(asked, 3)
                assert "start ZooKeeper, or restore the network to it" in " ".join(reader.shell.said.split())
        reader.run(f"until arkline status; do sleep {PAUSE}; done")
    reader.completed(bid)


def _is_zombie(pid: int) -> bool:
    return ") Z " in Path(f"/proc/{pid}/stat").read_text()


@contextmanager
def _ended(reader: Reader, kind: str) -> Iterator[None]:
    """The stack's processes of this kind are gone, and the stack cannot start them again until the end."""
    info = reader.site.info
    os.kill(info.pid, signal.SIGSTOP)
    try:
        for name, service in info.services.items():
            if name.startswith(kind):
                os.kill(service["pid"], signal.SIGTERM)
                eventually(partial(_is_zombie, service["pid"]))  # its parent is stopped
        yield
    finally:
        reader.shell.run("kill $(jobs -p); wait")
        os.kill(info.pid, signal.SIGCONT)


def test_every_remedy_is_executed_or_has_a_reason() -> None:
    assert set(CASES) | set(NOT_RUN) == set(Action)
    assert set(CASES) & set(NOT_RUN) == set()


def test_every_test_that_follows_a_remedy_elsewhere_exists() -> None:
    sources = "".join(path.read_text() for path in (PROJECT / "tests").rglob("test_*.py"))
    named = [name for reason in NOT_RUN.values() for name in re.findall(r"test_\w+", reason)]

    assert [name for name in named if f"def {name}(" not in sources] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with started(tmp_path_factory.mktemp("stack")) as running:
        yield running


def test_every_printed_remedy_works_in_the_shell_of_the_stack(site: Site) -> None:
    failed = {}
    for action, follows in CASES.items():
        with site.shell() as shell:
            try:
                follows(Reader(site, shell))
            except AssertionError as error:
                failed[action] = str(error)

    assert failed == {}


@pytest.mark.parametrize(("place", "data"), [("", "none"), ("reader", "data")])
def test_a_shell_without_settings_is_led_to_the_stack_that_runs(site: Site, place: str, data: str) -> None:
    """The folder of the stack is `var` here, or the default one."""
    top = site.home.parent
    (top / "data").mkdir(exist_ok=True)
    if not (default := top / "data" / "arkline").exists():
        default.symlink_to(site.home)
    fresh = f'cd {top / place}; env -i PATH="$PATH" HOME={top} XDG_DATA_HOME={top / data}'
    with site.shell() as shell:
        reader = Reader(site, shell)
        printed = reader.run(f"{fresh} arkline object ark:/99999/fk4nothere", 2)
        advised = re.findall(r"(?m)^try: (.*): have this shell use the stack that runs in ", printed)
        assert len(advised) == 1, printed

        reader.run(f"{fresh} bash -c '{advised[0]} && arkline status'")


def _is_open_to_others(path: Path, below: Path) -> bool:
    """Whether another user can read the file: its own mode, and those of the folders around it."""
    folders = [folder for folder in path.parents if folder.is_relative_to(below) and folder != below]
    return bool(path.stat().st_mode & 0o004) and all(folder.stat().st_mode & 0o001 for folder in folders)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_detached_stack_is_found_by_its_note_and_stopped_by_down(site: Site) -> None:
    """The stack of the other test, after it: no second one is started."""
    home, own = site.home, f"--home={site.home}"
    assert site.said.split()[-4:] == ["./dev", "down", "--home", str(home)]
    note = read_info(home)
    assert note is not None
    refused = dev("up", own)
    readable = [path for path in home.rglob("*") if path.is_file() and _is_open_to_others(path, home)]
    standalone = home / "log" / "standalone.log"
    log = standalone.read_text()
    shutil.rmtree(home / "run")
    refused_without_run = dev("up", own)
    stopped = dev("down", own)

    assert readable == []
    assert note.token not in log
    assert note.flower_password not in log
    assert standalone.stat().st_mode & 0o777 == 0o600
    assert "runs in" in refused.stderr
    assert f"(process {note.pid})" in " ".join(refused_without_run.stderr.split())
    assert f"./dev down --home {home}" in " ".join(refused.stderr.split())
    assert stopped.returncode == 0, stopped.stderr
    assert running_pid(home) is None
    pids = [service["pid"] for service in note.services.values()]
    assert len(pids) >= 4
    assert not any(_alive(pid) for pid in pids)
