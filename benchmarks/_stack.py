"""A whole stack for a benchmark: servers, a source and a fleet, all on loopback, for the block."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from entrypoints.stack.child import Process
from pipeline.settings import Settings
from tests.servers import redis, zookeeper
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, fleet
from zkstate.connection.session import Session, connect

PROFILES = Path(__file__).parent.parent / "examples" / "profiles"


@dataclass(frozen=True)
class Stack:
    settings: Settings
    session: Session
    zookeeper: zookeeper.Server
    broker: redis.Server
    source: HttpSource
    fleet: Fleet
    """Without any process yet."""

    def counted(self, **processes: Process) -> dict[str, int]:
        """Process ids by name: these processes, once they are ready, and both servers."""
        for process in processes.values():
            self.fleet.wait_ready(process)
        servers = {"zookeeper": self.zookeeper.process, "redis": self.broker.process}
        return {name: process.pid for name, process in (servers | processes).items()}


@contextmanager
def stack(**settings: object) -> Iterator[Stack]:
    """ZooKeeper, Redis and a source; `settings`: those that differ from the shipped ones."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise every process compiles what it imports
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        zk = opened.enter_context(zookeeper.running(folder / "zookeeper", quick_start=False))
        broker = opened.enter_context(redis.running(folder / "redis"))
        own = Settings.model_validate(
            {
                "zk_hosts": zk.hosts,
                "zk_root": "/benchmark",
                "broker_url": broker.url,
                "home": folder / "home",
                "profiles": PROFILES,
                "allow_networks": "127.0.0.0/8",
                **settings,
            }
        )
        session = opened.enter_context(connect(own))
        source = opened.enter_context(HttpSource())
        yield Stack(own, session, zk, broker, source, opened.enter_context(fleet(own, forked=False)))
