"""Real workers and beats as child processes of a test, and waiting for changes in ZooKeeper."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import SecretStr

from entrypoints.stack.child import Command, Process
from pipeline.records import Batch, BatchStatus, Job
from pipeline.settings import EnvironmentSettings, Settings
from pipeline.states import BATCH, BatchState, JobState
from tests.support.command_forks import CAN_START, forks
from tests.support.processes import await_ready
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.queue import listings
from zkstate.record import batches, jobs

PROJECT = Path(__file__).parents[2]

LIMIT = 120.0
"""Seconds that a busy machine may take to reach an expected state."""


def environment(settings: EnvironmentSettings) -> dict[str, str]:
    """The variables that give another process these settings."""
    variables = {}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        text = ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
        variables[f"ARKLINE_{name.upper()}"] = text
    return variables


def set_variables(patch: pytest.MonkeyPatch, settings: EnvironmentSettings) -> None:
    """Give this process and its children the settings, as an operator does; a plugin reads them there."""
    for name, value in environment(settings).items():
        patch.setenv(name, value)


class Forked(Process):
    """A process that is forked from one that has loaded the libraries."""

    def start(self) -> None:
        command = self.command
        command.log.parent.mkdir(parents=True, exist_ok=True)
        *_, module = command.argv[:5]
        environment = {**os.environ, **command.environment}
        with command.log.open("ab") as log:
            self._child = forks().start(module, command.argv[5:], environment, command.folder or PROJECT, log)


@dataclass
class Fleet:
    settings: Settings
    folder: Path
    running: list[Process] = field(default_factory=list)
    extra: dict[str, str] = field(default_factory=dict)
    """Further variables of the processes that are started from now on."""
    code: Path = PROJECT
    """The folder of the release that runs."""
    forked: bool = True
    """Whether processes may be forked from one that has loaded the libraries: not where they are measured."""

    def start(self, name: str, *arguments: str, wait: bool = True) -> Process:
        ready = self.folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        command = Command(
            name=name,
            argv=(sys.executable, "-W", "ignore", *arguments),
            log=self.folder / f"{name}.log",
            environment={
                "PYTHONPATH": str(self.code),
                **environment(self.settings),
                **self.extra,
                "ARKLINE_READY_FILE": str(ready),
            },
            folder=self.code,
            stop_seconds=20,
        )
        process = self._process(command)
        process.start()
        self.running.append(process)
        if wait:
            self.wait_ready(process)
        return process

    def _process(self, command: Command) -> Process:
        option, module = command.argv[3:5]
        is_own = option == "-m" and module not in (
            "arkline",
            "celery",
        )  # these start as they do for their users
        same_code = self.code == PROJECT and all(name.startswith("ARKLINE_") for name in self.extra)
        return (Forked if self.forked and is_own and same_code and CAN_START else Process)(command)

    def wait_ready(self, process: Process) -> None:
        await_ready(process, (self.folder / f"{process.name}.ready").exists)

    def worker(
        self, name: str = "worker", concurrency: int = 2, *, queues: str = "", wait: bool = True
    ) -> Process:
        """A worker for `queues`, separated by commas; for all of them if empty."""
        only = ("-Q", queues) if queues else ()
        program = ("-m", "tasks.worker_program", "-c", str(concurrency), *only, "-n", f"{name}@%h")
        return self.start(name, *program, wait=wait)

    def celery(self, name: str, *arguments: str, wait: bool = True) -> Process:
        """One of Celery's own programs, as its users start it."""
        return self.start(name, "-m", "celery", "-A", "arkline", *arguments, wait=wait)

    def beat(self, name: str = "beat", *, wait: bool = True) -> Process:
        return self.start(name, "-m", "tasks.beat_leader", wait=wait)

    def stop(self) -> None:
        for process in self.running:
            if process.running:
                process.terminate()
        for process in self.running:
            process.stop(5)

    def logs(self) -> str:
        return "\n".join(f"--- {p.name}\n{p.log_tail(60)}" for p in self.running)


@contextmanager
def fleet(settings: Settings, code: Path = PROJECT, *, forked: bool = True) -> Iterator[Fleet]:
    found = Fleet(settings, settings.home / "fleet", code=code, forked=forked)
    try:
        yield found
    except BaseException:
        sys.stderr.write(found.logs())
        raise
    finally:
        found.stop()


def wait_for(
    session: Session,
    path: str | Sequence[str],
    reached: Callable[[], bool],
    timeout: float,
    what: Callable[[], str],
) -> None:
    """Wait until `reached`; checked whenever the node at `path`, or one of several, changes."""
    deadline = time.monotonic() + timeout
    while True:
        changed = threading.Event()
        for each in (path,) if isinstance(path, str) else path:
            session.ask(session.zk.exists_async, each, watch=lambda _, seen=changed: seen.set())
        if reached():
            return
        if not changed.wait(max(0.0, deadline - time.monotonic())):
            raise AssertionError(f"not within {timeout} s: {what()}")


def wait_for_split(session: Session, bid: str) -> None:
    wait_for(
        session,
        paths.batch_status(bid),
        lambda: batches.load(session, bid).status.total is not None,
        LIMIT,
        lambda: str(batches.load(session, bid).status),
    )


def batch_ended(session: Session, bid: str, timeout: float = LIMIT) -> Batch:
    """The batch once it is completed, failed or held."""
    status = paths.batch_status(bid)

    def ended() -> bool:
        return codec.decode(BatchStatus, session.get(status)[0], status).status not in BATCH.working()

    def what() -> str:
        members = [jobs.load(session, jid).status for jid in batches.all_jobs(session, bid)]
        return f"{batches.load(session, bid).status} {members}"

    wait_for(session, status, ended, timeout, what)
    return batches.load(session, bid)


def job_reaches(session: Session, jid: str, *states: JobState, timeout: float = LIMIT) -> Job:
    def there() -> bool:
        return jobs.load(session, jid).status.status in states

    wait_for(session, paths.job_status(jid), there, timeout, lambda: str(jobs.load(session, jid)))
    return jobs.load(session, jid)


def quiet(session: Session, timeout: float = LIMIT) -> None:
    """Wait until the working directories of completed jobs are removed, which follows their last move."""
    completed = set(listings.completed_jobs(session))
    if not completed:
        return
    working = Path(jobs.load(session, min(completed)).configuration.working_dir).parents[1]
    deadline = time.monotonic() + timeout
    while left := [folder for folder in working.glob("bid*") if _is_left(folder, completed)]:
        if time.monotonic() > deadline:
            raise AssertionError(f"not cleaned up within {timeout} s: {left}")
        time.sleep(0.05)  # the removal of a folder is no event


def _is_left(batch: Path, completed: set[str]) -> bool:
    """Whether the folder of a batch has one of a completed job, or none at all and is about to be removed."""
    try:
        names = {folder.name for folder in batch.iterdir()}
    except FileNotFoundError:
        return False
    return not names or not names.isdisjoint(completed)


def is_completed(batch: Batch) -> bool:
    return batch.status.status is BatchState.COMPLETED


def assert_completed(batch: Batch) -> None:
    assert batch.status.status is BatchState.COMPLETED, batch.status.message
