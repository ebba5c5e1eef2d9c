"""A storm from beginning to end: start the stack, submit, wait, examine."""

import os
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entrypoints.cli.context import quiet_logs
from entrypoints.stack.services import StackConfig
from entrypoints.stack.signals import stop_signals
from entrypoints.stack.stack import Stack, running
from operations.bulk import act_on_many, cancel
from operations.operator import Operator
from operations.submission import submit
from pipeline.inventory.sql import open_inventory
from pipeline.principal import Interface, Principal, Role
from pipeline.profiles.profile import Profiles
from pipeline.records import Batch, Submission, SubmissionType
from pipeline.states import BATCH, BatchState, Bucket, Event
from tests.servers.http_source import HttpSource
from tools.storm import attacks, honest, leftovers
from tools.storm.changes import changed
from tools.storm.processes import Observer
from zkstate import batches, jobs
from zkstate.session import Session, connect

MOST_MEGABYTES = 300.0
"""That a process may have."""

COLLECTIONS = ("storm-honest", "storm-hostile")
"""Of the honest deposits, and of the others."""

_PROFILE = """\
name: {name}
owner: ark:/99999/fk4{owner}
collections: ["ark:/99999/fk4{owner}collection"]
naan: "99999"
shoulder: {shoulder}
"""

SECONDS_FOR_EACH = 20.0
"""In which a deposit has to end on average."""

CLEAN_UP_SECONDS = 120.0
"""Beat cleans up every 30 seconds."""

AFTER_THE_HONEST = 60.0
"""Seconds in which hostile deposits may still end by themselves, with the shipped times."""


@dataclass
class Result:
    honest: int = 0
    hostile: int = 0
    seconds: float = 0
    honest_seconds: float = 0
    """Until the last honest deposit had ended."""
    failed_by_operator: int = 0
    megabytes: dict[str, float] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    """Form -> a message."""
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        rounded = {name: round(value) for name, value in self.megabytes.items()}
        times = {"seconds": round(self.seconds), "honest_seconds": round(self.honest_seconds)}
        return {**vars(self), **times, "megabytes": rounded}


@dataclass
class _Deposit:
    bid: str
    form: str
    """Of the hostile one; empty for an honest one."""
    ended: Batch | None = None


def storm(
    hostile: int, good: int, seed: int, folder: Path, say: Callable[[str], None], *, shipped: bool = False
) -> Result:
    """Only in the main thread, which supervises the stack. `folder`: an empty one, for the stack.

    `shipped`: with the shipped times and tries, which some hostile deposits outlast by hours: an operator
    cancels those that have not ended soon after the last honest deposit.
    """
    _forget_settings()
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
            with running(_config(folder, shipped), signals, say) as stack:
                observer = Observer(lambda: {p.pid: p.name for p in stack.supervisor.processes if p.running})
                observer.start()
                with connect(stack.settings) as session:
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


def _forget_settings() -> None:
    """A storm must not hit a running stack of the caller."""
    for name in [name for name in os.environ if name.startswith("ARKLINE_")]:
        del os.environ[name]


def _config(folder: Path, shipped: bool) -> StackConfig:
    profiles = folder / "profiles"
    profiles.mkdir(parents=True)
    for name in COLLECTIONS:
        owner = name.replace("-", "")
        text = _PROFILE.format(name=name, owner=owner, shoulder=f"fk4{owner[-4:]}1")
        (profiles / f"{name}.yaml").write_text(text)
    own = {"ARKLINE_PROFILES": str(profiles), "ARKLINE_ALLOW_NETWORKS": "127.0.0.0/8"}
    lowered = {name: value for name, (value, _) in changed(shipped).items()}
    return StackConfig(home=folder, environment={**own, **lowered})


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
        self.principal = Principal(name="storm", role=Role.ADMIN, interface=Interface.CLI)
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
        submission = Submission(
            profile_name=COLLECTIONS[bool(form)],
            submitter="mallory" if form else "alice",
            payload_url=url,
            type=kind,
            payload_filename=url.rsplit("/", 1)[1],
            notification=("depositor@example.org",),
        )
        settings = self.stack.settings
        profiles = Profiles(settings.profiles)
        depositor = self.principal.model_copy(update={"name": submission.submitter})
        given = submit(self.session, settings, profiles, submission, depositor)
        self.deposits.append(_Deposit(given.bid, form))

    def _await_ends(self) -> None:
        """Until all have ended; an operator fails what a source has asked to wait for an hour."""
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
        """True if only hostile deposits are left that no limit ends soon."""
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
                cancel(self._operator("the source keeps its deposit for hours"), deposit.bid)
        self.result.failed_by_operator = len(self.cancelled)

    def _operator(self, reason: str) -> Operator:
        settings = self.stack.settings
        inventory = lambda: open_inventory(settings.inventory)  # noqa: E731
        return Operator(self.session, settings, inventory, principal=self.principal, reason=reason)

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
        """Of the failed jobs; of the batch if it was not split."""
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
        """What failed jobs keep goes when they are deleted; beat cleans up the rest."""
        working = self.stack.settings.working
        self._await(lambda: leftovers.unused_hosts(self.session))
        self._await(lambda: leftovers.of_working_storage(self.session, working))
        self._await(lambda: leftovers.of_record(self.session))
        failed = [deposit.bid for deposit in self.deposits if deposit.form and deposit.ended]
        outcome = act_on_many(self._operator("the storm is over"), Event.DELETE, failed)
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
