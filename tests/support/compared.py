"""The connections of compared sessions to a real ZooKeeper, each through a proxy of its own."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from kazoo.client import KazooClient

from pipeline.settings import Settings
from tests.servers.proxy import Proxy
from tools.simulation import comparison
from zkstate.connection.client import make_client
from zkstate.direct import Client


class RealLinks(comparison.Links):
    """`ports`: of the server of each session."""

    def __init__(self, settings: Settings, ports: Sequence[int], opened: ExitStack) -> None:
        self._settings, self._ports = settings, ports
        self.proxies = [opened.enter_context(Proxy(port)) for port in ports]
        self._opened: dict[int, Client] = {}
        self._away: dict[int, Any] = {}
        """Id and password of the sessions that are away."""

    def open(self, number: int) -> Client:
        user = comparison.USERS[number]
        own = {"zk_hosts": self.proxies[number].hosts, "zk_user": user, "zk_password": user}
        given = Settings.model_validate(self._settings.model_dump() | own)
        client = self._opened[number] = make_client(given)
        client.default_acl = None  # each request has its own
        return client

    def lose(self, number: int, what: str) -> None:
        if what == "answers":
            self.proxies[number].swallow()
        else:
            self.proxies[number].partition()

    def await_loss(self, number: int) -> None:
        assert self.proxies[number].swallowed.wait(comparison.WAIT)

    def cut(self, number: int) -> None:
        self.proxies[number].cut()

    def leave(self, number: int) -> None:
        self._away[number] = self._opened[number].client_id  # which kazoo only says of a connected one
        self.proxies[number].refuse()

    def come_back(self, number: int) -> None:
        self.proxies[number].accept()

    def end(self, number: int) -> None:
        with _stock(self._ports[number], client_id=self._away[number], timeout=4):
            pass


@contextmanager
def recorded(settings: Settings, ports: Sequence[int], root: str) -> Iterator[comparison.Recorder]:
    """A recorder on real servers; the root is removed at the end."""
    with ExitStack() as opened:
        recorder = comparison.Recorder(RealLinks(settings, ports, opened), root)
        try:
            recorder.start()
            yield recorder
        finally:
            for client in recorder.clients:
                client.stop_within(comparison.WAIT)
            with _stock(ports[0], auth_data=[("digest", "keeper:keeper")]) as keeper:
                keeper.delete(root, recursive=True)


@contextmanager
def _stock(port: int, **options: Any) -> Iterator[KazooClient]:
    client = KazooClient(hosts=f"127.0.0.1:{port}", **options)
    client.start(timeout=comparison.WAIT)
    yield client
    client.stop()
    client.close()
