import socket
from pathlib import Path

import pytest

from entrypoints.stack.child import ask
from entrypoints.stack.services import zookeeper_serves
from tests.servers import zookeeper as zookeeper_servers
from tests.servers.proxy import Proxy
from tests.servers.redis import Server as RedisServer
from tests.support.polling import eventually


def test_zookeeper_serves_and_tells_its_version(zookeeper: zookeeper_servers.Server) -> None:
    assert eventually(lambda: zookeeper_serves(zookeeper.port))
    assert zookeeper_servers.version(zookeeper.port) >= (3, 5, 0)


def test_zookeeper_serves_again_after_it_was_killed(tmp_path: Path) -> None:
    with zookeeper_servers.running(tmp_path, tick=500) as server:
        server.process.kill()
        assert not zookeeper_serves(server.port)

        server.start()

        assert eventually(lambda: zookeeper_serves(server.port))


def test_zookeeper_serves_in_a_folder_that_is_not_named_in_ascii(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "Häuser"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LC_ALL", "C")

    with zookeeper_servers.running(folder, tick=500) as server:
        assert eventually(lambda: zookeeper_serves(server.port))


def test_redis_answers(redis_server: RedisServer) -> None:
    assert eventually(lambda: ask(redis_server.port, b"PING\r\n", b"+PONG"))


def test_the_proxy_loses_answers_and_then_works_again(zookeeper_proxy: Proxy) -> None:
    zookeeper_proxy.swallow()
    assert not zookeeper_serves(zookeeper_proxy.port)
    assert zookeeper_proxy.swallowed.wait(30)

    zookeeper_proxy.cut()

    assert eventually(lambda: zookeeper_serves(zookeeper_proxy.port))


def test_the_proxy_refuses_clients_until_it_accepts_again(zookeeper_proxy: Proxy) -> None:
    zookeeper_proxy.refuse()
    assert not zookeeper_serves(zookeeper_proxy.port)
    assert zookeeper_proxy.refused.wait(30)

    zookeeper_proxy.accept()

    assert eventually(lambda: zookeeper_serves(zookeeper_proxy.port))


def test_the_proxy_ends_open_connections(zookeeper_proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", zookeeper_proxy.port), timeout=5) as connection:
        connection.sendall(b"ru")  # half a command: the server waits for the rest
        assert zookeeper_proxy.connected.wait(30)

        zookeeper_proxy.cut()

        assert connection.recv(10) == b""


def test_an_ensemble_elects_another_leader_when_its_leader_dies(tmp_path: Path) -> None:
    with zookeeper_servers.running(tmp_path, servers=3, tick=500) as ensemble:
        ensemble.leader().kill()
        survivors = [
            port for port, process in zip(ensemble.ports, ensemble.processes, strict=True) if process.running
        ]

        assert eventually(lambda: any(zookeeper_servers.is_leader(port) for port in survivors))
