"""A whole stack of a benchmark: servers, a source and a fleet, all on loopback, until the block ends."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.settings import Settings
from tests.servers import redis, zookeeper
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, fleet
from zkstate.session import Session, connect

PROFILES = Path(__file__).parent.parent / "examples" / "profiles"


@dataclass(frozen=True)
class Stack:
    settings: Settings
    session: Session
    zookeeper: zookeeper.Server
    source: HttpSource
    fleet: Fleet
    """Has no process yet."""

    def packets(self) -> int:
        """Packets that ZooKeeper has received so far."""
        lines = self.session.zk.command(b"mntr").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("zk_packets_received"))


@contextmanager
def stack(**settings: object) -> Iterator[Stack]:
    """ZooKeeper, Redis and a source; `settings`: those that differ from the shipped ones."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process compiles what it imports
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        zk = opened.enter_context(zookeeper.running(folder / "zookeeper"))
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
        yield Stack(own, session, zk, source, opened.enter_context(fleet(own)))
