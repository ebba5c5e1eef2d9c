"""A ZooKeeper server behind a partition, follower or leader, costs no move and doubles none.

The three servers are hosts of their own, in network namespaces; a partition is a link that is down.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from entrypoints.stack.child import Process, ask
from entrypoints.stack.services import ServerMissing
from pipeline.settings import Settings
from pipeline.states import JOB, JobState
from tests.servers.zookeeper import prepare
from tests.support import planting
from tests.support.polling import eventually
from tests.support.requirements import unavailable
from zkstate.care.audit import audit
from zkstate.connection.session import connect
from zkstate.record import jobs

pytestmark = pytest.mark.timeout(180)

PORT, PEER, ELECT = 2181, 2888, 3888
SERVING = ("follower", "leader")
"""The modes of a server of an ensemble that serves clients."""


def ip(*arguments: str) -> str:
    return subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Host:
    number: int
    name: str
    address: str

    def link(self, state: str) -> None:
        ip("link", "set", f"{self.name}-out", state)

    def mode(self) -> str:
        for mode in SERVING:
            if ask(PORT, b"srvr", f"Mode: {mode}".encode(), host=self.address):
                return mode
        return ""


@pytest.fixture
def hosts() -> Iterator[tuple[Host, ...]]:
    """Three hosts on one bridge, and this one beside them."""
    if os.geteuid() != 0:
        pytest.skip("only root may make network namespaces")
    if shutil.which("ip") is None:
        unavailable("ip is needed to make network namespaces: apt-get install iproute2")
    with ExitStack() as undo:
        try:
            made = _make_hosts(undo)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network of its own can be made here: {error.stderr.strip()}")
        yield made


def _unused_network() -> str:
    """The first three numbers of a network in which this host has no address.

    A run that was killed leaves its bridge, and the packets of the next run would go there.
    """
    addresses = ip("-4", "-oneline", "address")
    start = os.getpid()
    numbered = (f"10.231.{(start + step) % 256}" for step in range(256))
    return next(network for network in numbered if f" {network}." not in addresses)


def _make_hosts(undo: ExitStack) -> tuple[Host, ...]:
    tag = f"a{os.getpid() % 100000}"
    network = _unused_network()
    ip("link", "add", tag, "type", "bridge")
    undo.callback(ip, "link", "delete", tag)
    ip("address", "add", f"{network}.254/24", "dev", tag)
    ip("link", "set", tag, "up")
    made = []
    for number in (1, 2, 3):
        host = Host(number, f"{tag}n{number}", f"{network}.{number}")
        ip("netns", "add", host.name)
        undo.callback(ip, "netns", "delete", host.name)
        ip("link", "add", f"{host.name}-out", "type", "veth", "peer", "name", "eth0", "netns", host.name)
        ip("link", "set", f"{host.name}-out", "master", tag)
        ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", host.name, "link", "set", device, "up")
        host.link("up")
        made.append(host)
    return tuple(made)


@pytest.fixture
def ensemble(hosts: tuple[Host, ...], tmp_path: Path) -> Iterator[tuple[Host, ...]]:
    try:
        commands = prepare(tmp_path / "zookeeper", tick=500)
    except ServerMissing as missing:
        unavailable(missing)
    members = [f"server.{host.number}={host.address}:{PEER}:{ELECT}" for host in hosts]
    with ExitStack() as undo:
        for host, command in zip(hosts, commands.values(), strict=True):
            file = Path(command.argv[-1])
            kept = [
                line
                for line in file.read_text().splitlines()
                if not line.startswith(("server.", "clientPort", "syncLimit", "initLimit"))
            ]
            own = [f"clientPort={PORT}", f"clientPortAddress={host.address}", "syncLimit=4", "initLimit=20"]
            file.write_text("\n".join([*kept, *own, *members]) + "\n")
            argv = ("ip", "netns", "exec", host.name, *command.argv)
            process = Process(replace(command, argv=argv))
            process.start()
            undo.callback(process.stop)
        for host in hosts:
            with_mode([host], *SERVING)
        yield hosts


def with_mode(hosts: Iterable[Host], *modes: str) -> Host:
    """The first host whose server is in one of the modes, once there is one: an election takes its time."""
    return eventually(lambda: next((host for host in hosts if host.mode() in modes), None))


def test_a_follower_or_a_leader_behind_a_partition_costs_no_move(
    ensemble: tuple[Host, ...], tmp_path: Path
) -> None:
    settings = Settings(
        zk_hosts=",".join(f"{host.address}:{PORT}" for host in ensemble),
        zk_root="/partition",
        zk_open=True,
        zk_session_timeout=10,
        home=tmp_path,
    )
    with connect(settings) as session:
        moved = []
        for mode in SERVING:
            cut_off = with_mode(ensemble, mode)
            cut_off.link("down")
            with_mode([host for host in ensemble if host is not cut_off], "leader")
            for _ in range(3):
                job = planting.one_job(session)
                moved.append(planting.complete(session, job))
            cut_off.link("up")
            with_mode([cut_off], *SERVING)

        for job in moved:
            kept = jobs.load(session, job.jid)
            assert (kept.status, kept.history, kept.identifiers) == (job.status, job.history, job.identifiers)
            assert [entry.state for entry in kept.history] == [*JOB.working(), JobState.COMPLETED]
            jobs.clean_up(session, kept)
        assert audit(session) == ()
    healed = settings.model_copy(update={"zk_hosts": f"{cut_off.address}:{PORT}"})
    with connect(healed) as session:
        session.get_synced(f"/jobs/{moved[0].jid}/status")
        assert [jobs.load(session, job.jid).status for job in moved] == [job.status for job in moved]
