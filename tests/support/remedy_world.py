"""A running fleet with a separate record, for tests that cause a problem and follow `why`."""

import itertools
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from entrypoints.render.remedies import command
from entrypoints.stack.child import Process
from operations.deposits.submission import submit
from operations.explanation import Explanation
from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline.errors import Action, Remedy
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from tasks.redis_keys import client
from tasks.stores import claim_key
from tests.servers.http_source import HttpSource
from tests.servers.redis import Server as RedisServer
from tests.servers.zookeeper import Server as ZooKeeperServer
from tests.support import cli as arkline
from tests.support import planting
from tests.support.fleet import LIMIT, Fleet, batch_ended, job_reaches
from tests.support.operators import ANN
from zkstate import paths
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session
from zkstate.record import batches, jobs

PROFILE = "owner: ark:/99999/fk4o\ncollections: ark:/99999/fk4c\nnaan: '99999'\nshoulder: fk4\n"
DEMO = Path(__file__).parents[2] / "examples" / "profiles" / "demo.yaml"

_numbers = itertools.count()

Case = Callable[["World"], None]
Value = TypeVar("Value")


def adding_to(cases: dict[Reason, Case]) -> Callable[[Reason], Callable[[Case], Case]]:
    """A decorator: the function shows that what `why` says of a reason is true and its advice works."""

    def of(reason: Reason) -> Callable[[Case], Case]:
        def add(case: Case) -> Case:
            cases[reason] = case
            return case

        return add

    return of


def write_profiles(folder: Path) -> None:
    """`demo`, `small` with one active job at a time, `shy` with one connection to a host, `reviewed`."""
    folder.mkdir()
    shutil.copy(DEMO, folder / "demo.yaml")
    (folder / "small.yaml").write_text(f"{PROFILE}limits:\n  jobs_at_work: 1\n")
    (folder / "reviewed.yaml").write_text(f"{PROFILE}review: true\n")
    (folder / "shy.yaml").write_text(f"{PROFILE}limits:\n  host_connections: 1\n")


def quick_settings(zookeeper: ZooKeeperServer, redis: RedisServer, home: Path, **changes: object) -> Settings:
    """Settings of a world of its own, whose jobs fail after few tries and whose stops take a second."""
    own = f"t{uuid4().hex}"
    write_profiles(home / "profiles")
    return Settings.model_validate(
        {
            "zk_hosts": zookeeper.hosts,
            "zk_root": f"/{own}",
            "zk_session_timeout": 4,
            "broker_url": redis.url,
            "broker_prefix": f"{own}:",
            "home": home,
            "profiles": home / "profiles",
            "allow_networks": "127.0.0.0/8",
            "max_tries": 2,
            "fetch_tries": 1,
            "working_capacity": 1_000_000,
            "stop_grace": 1,
            **changes,
        }
    )


@dataclass
class Held:
    """A batch of one file whose download waits until the gate is opened."""

    bid: str
    jid: str
    gate: threading.Event
    path: str


@dataclass
class World:
    session: Session
    settings: Settings
    fleet: Fleet
    source: HttpSource
    redis: RedisServer
    submitted_again: str = ""
    gates: list[threading.Event] = field(default_factory=list)
    more: list[Process] = field(default_factory=list)
    """Workers that were started on advice."""

    def end_case(self) -> None:
        """Let every held download go on, and stop the further workers: the next case counts processes."""
        for gate in self.gates:
            gate.set()
        self.gates.clear()
        for process in self.more:
            process.stop()
            self.fleet.running.remove(process)
        self.more.clear()

    def put(self, body: bytes = b"content", **how: Any) -> str:
        return self.source.put(f"/{next(_numbers)}.txt", body, **how)

    def submit(self, url: str = "", profile: str = "demo", **changes: object) -> str:
        """The BID."""
        given = planting.submission(profile_name=profile, payload_url=url or self.put(), **changes)
        return submit(Site(self.settings, self.session), ANN, given).bid

    def job(self, bid: str) -> str:
        """The JID of the batch's only job, once there is one."""
        return self.until(lambda: next(iter(batches.all_jobs(self.session, bid)), ""), f"a job of {bid}")

    def gate(self) -> threading.Event:
        """The source sends the rest when this event is set, at the end of the test at the latest."""
        gate = threading.Event()
        self.gates.append(gate)
        return gate

    def held(self, profile: str = "demo", body: bytes = b"content") -> Held:
        """A job whose download has begun and waits."""
        gate = self.gate()
        url = self.put(body, hold=gate)
        path = url.removeprefix(self.source.url(""))
        bid = self.submit(url, profile)
        jid = self.job(bid)
        job_reaches(self.session, jid, JobState.DOWNLOADING, timeout=LIMIT)
        return Held(bid, jid, gate, path)

    def planted(self) -> Job:
        """A pending job that no feeder has read; to be used without a beat."""
        url = self.put()
        return jobs.load(
            self.session,
            planting.split_batch(self.session, 1, self.settings.working, payload_url=url)[1][0],
        )

    def why(self, name: str) -> Explanation:
        return why(Site(self.settings, self.session), ANN, name)

    def expect(self, name: str, reason: Reason) -> Explanation:
        """The explanation of the job or batch, once it has this reason."""
        seen: list[Explanation] = []

        def explained() -> Explanation | None:
            seen.append(self.why(name))
            return seen[-1] if seen[-1].reason is reason else None

        return self.until(explained, lambda: f"{reason} of {name}; the last was {seen[-1]}")

    def until(self, reached: Callable[[], Value | None], what: str | Callable[[], str]) -> Value:
        """What `reached` returns once it is true; `why` offers no event to wait for."""
        deadline = time.monotonic() + LIMIT
        while not (found := reached()):
            assert time.monotonic() < deadline, f"not within {LIMIT} s: {what() if callable(what) else what}"
            time.sleep(0.1)
        return found

    def remedied(self, name: str, reason: Reason) -> Explanation:
        """Wait for the reason, and follow the advice literally."""
        found = self.expect(name, reason)
        assert found.remedies, f"no remedy: {found}"
        self.follow(found.remedies)
        return found

    def moves_itself(self, name: str, reason: Reason) -> Explanation:
        found = self.expect(name, reason)
        assert (found.moves_itself, found.remedies, found.obstacles) == (True, (), ())
        return found

    def follow(self, remedies: tuple[Remedy, ...]) -> None:
        for remedy in remedies:
            if remedy.action is Action.START_BEAT:
                self.start_beat()
            elif remedy.action is Action.START_WORKER:  # a worker that is slow to answer seems to be missing
                self.more.append(self.fleet.worker(f"more-{remedy.target}", queues=remedy.target))
            elif remedy.action is Action.START_BROKER:
                self.redis.process.start()
            elif remedy.action is Action.FIX_BROKER:
                client(self.settings).config_set("maxmemory", 0)
            elif remedy.action is Action.CHANGE_PREFIX:  # the message names this way too
                client(self.settings).delete(claim_key(self.settings))
            elif remedy.action is Action.SUBMIT_AGAIN:
                self.submitted_again = self.submit()
            elif remedy.action is not Action.ADD_SPACE:
                yes = ("--yes",) if remedy.action is Action.DELETE else ()
                self.arkline(*shlex.split(command(remedy))[1:], *yes, code=remedy.action is Action.AUDIT)

    def arkline(self, *words: str, code: int = 0) -> str:
        done = arkline.run(self.settings, *words)
        assert done.code == code, (words, done)
        return done.out

    def completed(self, bid: str) -> None:
        assert batch_ended(self.session, bid, LIMIT).status.status is BatchState.COMPLETED

    def job_completes(self, jid: str) -> None:
        job_reaches(self.session, jid, JobState.COMPLETED, timeout=LIMIT)

    def failed_by_operator(self) -> Held:
        """A batch whose only job was stopped by an operator; its report says so."""
        held = self.held()
        self.arkline("fail", held.jid, "--reason", "stopped by the test")
        assert batch_ended(self.session, held.bid, LIMIT).status.status is BatchState.FAILED
        return held

    @contextmanager
    def half_of_the_places_each(self) -> Iterator[None]:
        """One of the two places for a collection, until the share is raised at the end."""
        usual = self.settings
        self.settings = usual.model_copy(update={"share_of_places": 50})
        self.fleet.extra["ARKLINE_SHARE_OF_PLACES"] = "50"
        self._restart()
        try:
            yield
        finally:
            self.settings = usual
            del self.fleet.extra["ARKLINE_SHARE_OF_PLACES"]
            self._restart()

    @contextmanager
    def more_space(self) -> Iterator[None]:
        """Working storage is enlarged: the worker and the beat are started again with other settings."""
        self.fleet.extra["ARKLINE_WORKING_CAPACITY"] = "10000000"
        self._restart()
        try:
            yield
        finally:
            del self.fleet.extra["ARKLINE_WORKING_CAPACITY"]
            self._restart()

    def _restart(self) -> None:
        for process in list(self.fleet.running):
            process.terminate()
            process.stop(20)
            self.fleet.running.remove(process)
        self.fleet.worker("w1", concurrency=4)
        self.fleet.beat()

    def start_beat(self) -> None:
        self.fleet.beat()

    @contextmanager
    def without_beat(self, *, leader: bool) -> Iterator[None]:
        """Nothing feeds or sweeps; `leader`: the record says that a beat leads. At the end there is one."""
        for process in [p for p in self.fleet.running if p.name == "beat"]:
            process.terminate()
            process.stop(20)
            self.fleet.running.remove(process)
        fake = f"{paths.LEADER}/{'0' * 32}__lock__0000000000"
        self.until(lambda: not self.session.children(paths.LEADER), "no beat leads")
        if leader:
            self.session.zk.create(fake, b"beat of the test", ephemeral=True, makepath=True)
        try:
            with self._neither_fed_nor_swept():
                yield
        finally:
            if leader:
                self.session.zk.delete(fake)
            if not any(p.name == "beat" for p in self.fleet.running):
                self.start_beat()

    @contextmanager
    def _neither_fed_nor_swept(self) -> Iterator[None]:
        """A worker that has received the message of a beat that is gone does not act on it."""
        with ExitStack() as locks:
            for work in ("feed", "sweep"):
                self.until(partial(_locked, locks, self.session, work), f"no {work} runs")
            yield


def _locked(locks: ExitStack, session: Session, work: str) -> ServerClock | None:
    return locks.enter_context(single_flight(session, work))
