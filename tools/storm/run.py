"""A storm from start to finish: start the stack, submit, wait, examine."""

import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from entrypoints.cli.context import quiet_logs
from entrypoints.stack.child import Process
from entrypoints.stack.services import StackConfig
from entrypoints.stack.stack import Stack, running
from entrypoints.stack.supervisor import stop_signals
from operations.deposits.submission import submit
from operations.site import Site
from operations.tokens import create_token
from operations.verbs.bulk import act_on_many, cancel
from pipeline.inventory.sql import open_inventory
from pipeline.principal import Interface, Principal, Role
from pipeline.records import Batch, Submission, SubmissionType
from pipeline.settings import Settings
from pipeline.states import BATCH, BatchState, Bucket, Event
from tests.servers.http_source import HttpSource
from tools.storm import attacks, callers, honest, leftovers
from tools.storm.changes import changed
from tools.storm.generator import Order, start
from tools.storm.processes import Observer
from zkstate.connection.session import Session, connect
from zkstate.record import batches, jobs

MOST_MEGABYTES = 300.0
"""Memory limit of a process."""

_ADMIN = Principal(name="storm", role=Role.ADMIN, interface=Interface.CLI)

COLLECTIONS = ("storm-honest", "storm-hostile")
"""The collections of honest and of hostile deposits."""

_PROFILE = """\
name: {name}
owner: ark:/99999/fk4{owner}
collections: ["ark:/99999/fk4{owner}collection"]
naan: "99999"
shoulder: {shoulder}
"""

SECONDS_FOR_EACH = 20.0
"""Average seconds within which a deposit must end."""

SECONDS_OF_AN_ACT = 4.0
"""Seconds of each act against the web process."""

FEW_FILES = 10_000
"""Orphaned files in working storage; with the shipped times, as many as `callers` says."""

CLEAN_UP_SECONDS = 120.0
"""Maximum seconds for a clean-up, which beat does every 30 seconds."""

AFTER_THE_HONEST = 60.0
"""Seconds for hostile deposits to end by themselves after the last honest one, with the shipped times."""


@dataclass
class Result:
    honest: int = 0
    hostile: int = 0
    seconds: float = 0
    honest_seconds: float = 0
    """Seconds until the last honest deposit had ended."""
    failed_by_operator: int = 0
    megabytes: dict[str, float] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    """Form -> a message."""
    acts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Hostile act against the web process -> how often each answer was given."""
    web_restarts: int = 0
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        rounded = {name: round(value) for name, value in self.megabytes.items()}
        times = {"seconds": round(self.seconds), "honest_seconds": round(self.honest_seconds)}
        return {**vars(self), **times, "megabytes": rounded}


@dataclass
class _Deposit:
    bid: str
    form: str
    """The form of a hostile deposit; empty for an honest one."""
    ended: Batch | None = None


def storm(
    hostile: int, good: int, seed: int, folder: Path, say: Callable[[str], None], *, shipped: bool = False
) -> Result:
    """Run the storm; main thread only, because it supervises the stack. `folder`: empty, for the stack.

    `shipped`: with the shipped timeouts and retries, which some hostile deposits outlast by hours: an
    operator cancels those that have not ended soon after the last honest deposit.
    """
    forget_settings()
    quiet_logs()
    chance = random.Random(f"storm {seed}")  # noqa: S311 - chooses deposits
    result = Result(good, hostile)
    with ExitStack() as servers:
        source = servers.enter_context(HttpSource(host=honest.HOST))
        deposits = honest.prepare(good, chance, source)
        hostile_ones = attacks.prepare(hostile, chance, servers)
        forms = {attack.form for attack in hostile_ones}
        say(f"{hostile} hostile deposits of {len(forms)} forms, {good} honest ones")
        signals = servers.enter_context(stop_signals())
        observer = None
        try:
            with running(config(folder, changed(shipped)), signals, say) as stack:
                observer = Observer(lambda: {p.pid: p.name for p in stack.supervisor.processes if p.running})
                observer.start()
                fill_working_storage(stack, callers.FILES_IN_WORKING_STORAGE if shipped else FEW_FILES)
                with connect(stack.settings) as session, _hostile_requests(stack, result):
                    _Storm(stack, session, result, say, shipped).run(deposits, hostile_ones, chance)
                observer.stop()
        finally:
            if observer:
                observer.stop()
        result.megabytes = observer.peaks()
        result.problems += [f"{process} still runs" for process in observer.left()]
        result.problems += [
            f"{name} had {megabytes:.0f} MB, more than {MOST_MEGABYTES:.0f}"
            for name, megabytes in result.megabytes.items()
            if megabytes > MOST_MEGABYTES
        ]
    return result


def forget_settings() -> None:
    """Drop the caller's settings: a storm must not hit a running stack."""
    for name in [name for name in os.environ if name.startswith("ARKLINE_")]:
        del os.environ[name]


def config(folder: Path, changes: Mapping[str, tuple[str, str]]) -> StackConfig:
    """A stack that allows sources on this machine, with these changes to the shipped settings."""
    profiles = folder / "profiles"
    profiles.mkdir(parents=True)
    for name in COLLECTIONS:
        owner = name.replace("-", "")
        text = _PROFILE.format(name=name, owner=owner, shoulder=f"fk4{owner[-4:]}1")
        (profiles / f"{name}.yaml").write_text(text)
    own = {"ARKLINE_PROFILES": str(profiles), "ARKLINE_ALLOW_NETWORKS": "127.0.0.0/8"}
    return StackConfig(
        home=folder, environment={**own, **{name: value for name, (value, _) in changes.items()}}
    )


def fill_working_storage(stack: Stack, files: int) -> None:
    """Create empty orphaned files, which the web process counts when it measures."""
    for number in range(files):
        folder = stack.settings.working / "left" / str(number // 1000)
        if number % 1000 == 0:
            folder.mkdir(parents=True)
            stack.supervisor.poll()
        os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY, 0o600))


def new_token(settings: Settings, name: str, collection: str | None, role: Role = Role.DEPOSITOR) -> str:
    """A token for a depositor of this collection, or for a principal that sees all collections."""
    collections = None if collection is None else [collection]
    return create_token(open_inventory(settings.inventory), _ADMIN, name, role, collections).token


def hostile_tokens(settings: Settings) -> tuple[str, str]:
    return (
        new_token(settings, "mallory", COLLECTIONS[1]),
        new_token(settings, "mallory-views", None, Role.VIEWER),
    )


def web_of(stack: Stack) -> Process:
    return next(process for process in stack.supervisor.processes if process.name == "web")


def output_of(generator: "subprocess.Popen[str]", stack: Stack, seconds: float) -> str:
    """The generator's output until it exits, at most `seconds`, while the stack is supervised."""
    assert generator.stdin is not None
    generator.stdin.close()
    generator.stdin = None
    with ThreadPoolExecutor(1) as reader:
        output = reader.submit(generator.communicate)
        deadline = time.monotonic() + seconds
        try:
            while not output.done() and time.monotonic() < deadline:
                stack.supervisor.poll_for(0.2)
        finally:
            if generator.poll() is None and not output.done():
                generator.kill()
        return output.result()[0]


@contextmanager
def _hostile_requests(stack: Stack, result: Result) -> Iterator[None]:
    """Perform each act against the web process in turn, at least once, until the block ends."""
    tokens = hostile_tokens(stack.settings)
    generator = start(Order(stack.info.web_url, COLLECTIONS[1], tokens, SECONDS_OF_AN_ACT))
    try:
        yield
        for phase in json.loads(output_of(generator, stack, 4 * SECONDS_OF_AN_ACT * len(callers.ACTS))):
            counted = Counter(result.acts.get(phase["act"], {})) + Counter(phase["answers"])
            result.acts[phase["act"]] = dict(counted)
        for act, answers in result.acts.items():
            result.problems += callers.accepted(act, answers)
    finally:
        if generator.poll() is None:
            generator.kill()
    result.web_restarts = len(web_of(stack).restarts)
    if result.web_restarts:
        result.problems.append(f"the web process was restarted {result.web_restarts} times")


class _Storm:
    """One storm on a running stack."""

    def __init__(
        self, stack: Stack, session: Session, result: Result, say: Callable[[str], None], shipped: bool
    ) -> None:
        self.shipped = shipped
        self.stack = stack
        self.session = session
        self.result = result
        self.say = say
        self.principal = _ADMIN
        self.token = new_token(stack.settings, "alice", COLLECTIONS[0])
        self.deposits: list[_Deposit] = []
        self.cancelled: set[str] = set()
        self.began = time.monotonic()

    def run(self, good: list[honest.Deposit], hostile: list[attacks.Attack], chance: random.Random) -> None:
        submissions = [("", deposit.url, deposit.kind) for deposit in good]
        submissions += [(attack.form, attack.url, attack.kind) for attack in hostile]
        chance.shuffle(submissions)
        for form, url, kind in submissions:
            self._submit(form, url, kind)
            self.stack.supervisor.poll()
        self._await_ends()
        self.result.seconds = time.monotonic() - self.began
        self._judge()
        stored = (digest for deposit in good for digest in deposit.sha512)
        self.result.problems += leftovers.of_storage(self.stack.settings, stored)
        self._await_nothing_left()

    def _submit(self, form: str, url: str, kind: SubmissionType) -> None:
        """Submit a hostile deposit directly, an honest one over the API as its depositor would."""
        if not form:
            self._deposit(url, kind)
            return
        submission = Submission(
            profile_name=COLLECTIONS[1],
            submitter="mallory",
            payload_url=url,
            type=kind,
            payload_filename=url.rsplit("/", 1)[1],
            notification=("depositor@example.org",),
        )
        depositor = self.principal.model_copy(update={"name": submission.submitter})
        given = submit(Site(self.stack.settings, self.session), depositor, submission)
        self.deposits.append(_Deposit(given.bid, form))

    def _deposit(self, url: str, kind: SubmissionType) -> None:
        answer = requests.post(
            f"{self.stack.info.web_url}v1/batches",
            json={
                "profile": COLLECTIONS[0],
                "payload_url": url,
                "type": kind,
                "name": url.rsplit("/", 1)[1],
                "notification": ["depositor@example.org"],
            },
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=60,
        )
        if answer.ok:
            self.deposits.append(_Deposit(answer.json()["bid"], ""))
        else:
            self.result.problems.append(f"{url} was not accepted: {answer.status_code} {answer.text[:300]}")

    def _await_ends(self) -> None:
        """Wait until all have ended; an operator fails those that a source has asked to wait for an hour."""
        deadline = self.began + 180 + SECONDS_FOR_EACH * len(self.deposits)
        said = 0.0
        while waiting := self._not_ended():
            if self._outlast_the_rest(waiting):
                self._fail(waiting)
            if time.monotonic() > deadline:
                for deposit in waiting:
                    self.result.problems.append(
                        f"{self._name(deposit)} has not ended: {self._state(deposit)}"
                    )
                return
            if time.monotonic() - said > 15:
                said = time.monotonic()
                good = sum(not deposit.form for deposit in waiting)
                self.say(f"{said - self.began:.0f} s: {len(waiting)} have not ended, {good} of them honest")
            self.stack.supervisor.poll_for(1.0)

    def _outlast_the_rest(self, waiting: list[_Deposit]) -> bool:
        """True if the only deposits left are hostile ones that no limit ends soon."""
        if self.shipped and all(deposit.form for deposit in waiting):
            return time.monotonic() - self.began > self.result.honest_seconds + AFTER_THE_HONEST
        return all(deposit.form == attacks.ASKS_FOR_AN_HOUR for deposit in waiting)

    def _not_ended(self) -> list[_Deposit]:
        for deposit in self.deposits:
            if deposit.ended is None:
                batch = batches.load(self.session, deposit.bid)
                if batch.status.status not in BATCH.working():
                    deposit.ended = batch
                    if not deposit.form:
                        self.result.honest_seconds = time.monotonic() - self.began
        return [deposit for deposit in self.deposits if deposit.ended is None]

    def _fail(self, waiting: list[_Deposit]) -> None:
        for deposit in waiting:
            if self.shipped or batches.jobs_in(self.session, deposit.bid, Bucket.PROCESSING):
                self.cancelled.add(deposit.bid)
                why = "the source keeps its deposit for hours"
                cancel(self._site, self.principal, deposit.bid, reason=why)
        self.result.failed_by_operator = len(self.cancelled)

    @property
    def _site(self) -> Site:
        return Site(self.stack.settings, self.session)

    def _judge(self) -> None:
        for deposit in self.deposits:
            if deposit.ended is None:
                continue
            state = deposit.ended.status.status
            if not deposit.form:
                if state is not BatchState.COMPLETED:
                    self.result.problems.append(f"{self._name(deposit)}: {self._state(deposit)}")
                continue
            messages = self._messages(deposit)
            self.result.messages[deposit.form] = next(iter(messages), "")[:300]
            if state is not BatchState.FAILED or not messages or not all(map(str.isprintable, messages)):
                self.result.problems.append(f"{self._name(deposit)} is {state} with {messages}")
            elif not deposit.ended.report:
                self.result.problems.append(f"{self._name(deposit)} has no report")

    def _messages(self, deposit: _Deposit) -> list[str]:
        """Messages of the failed jobs, or of the batch if it was not split."""
        failed = batches.jobs_in(self.session, deposit.bid, Bucket.FAILED)
        if failed:
            return [jobs.load(self.session, jid).status.message or "" for jid in failed]
        batch = batches.load(self.session, deposit.bid)
        return [batch.status.message] if batch.status.message else []

    def _name(self, deposit: _Deposit) -> str:
        return f"{deposit.bid} ({deposit.form or 'honest'})"

    def _state(self, deposit: _Deposit) -> str:
        batch = batches.load(self.session, deposit.bid)
        members = [jobs.load(self.session, jid).status for jid in batches.all_jobs(self.session, deposit.bid)]
        said = [f"{status.status}: {status.message}" for status in members]
        return f"{batch.status.status} {batch.status.message} {said}"

    def _await_nothing_left(self) -> None:
        """Wait until nothing is left: deleting failed jobs removes what they keep; beat cleans up the
        rest."""
        working = self.stack.settings.working
        self._await(lambda: leftovers.unused_hosts(self.session))
        self._await(lambda: leftovers.of_working_storage(self.session, working))
        self._await(lambda: leftovers.of_record(self.session))
        failed = [deposit.bid for deposit in self.deposits if deposit.form and deposit.ended]
        why = "the storm is over"
        outcome = act_on_many(self._site, self.principal, Event.DELETE, failed, reason=why)
        self.result.problems += [
            f"{refusal.id} is not deleted: {refusal.message}" for refusal in outcome.refused
        ]
        self._await(lambda: leftovers.at_the_end(self.session, working))

    def _await(self, left: Callable[[], list[str]]) -> None:
        deadline = time.monotonic() + CLEAN_UP_SECONDS
        while problems := left():
            if time.monotonic() > deadline:
                self.result.problems += [f"left behind: {problem}" for problem in problems[:20]]
                return
            self.stack.supervisor.poll_for(2.0)
