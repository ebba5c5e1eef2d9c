"""What the operator is told of the storage service when it cannot even be asked, or breaks off."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.outcome import ServiceDown, StepFailed
from pipeline.states import FailureKind
from plugins.merritt.http import MerrittHttp
from plugins.merritt.settings import MerrittSettings
from tests.servers.http_source import HttpSource
from tests.support.step_context import local_settings

TRANSIENT = FailureKind.TRANSIENT

Ask = Callable[[MerrittHttp], object]


def get(service: MerrittHttp) -> object:
    return service.get("manifest", 1, "ark:/99999/a")


def post(service: MerrittHttp) -> object:
    return service.post("jid0000000001", {"manifest": ""}, "add", 1, "ark:/99999/a")


def pieces(service: MerrittHttp) -> object:
    return list(service.pieces("content", "a"))


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """It listens, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        yield listening


def nobody() -> str:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


def told(url: str, ask: Ask, home: Path) -> StepFailed:
    settings = local_settings(home, read_timeout=0.2, connect_timeout=0.2)
    own = MerrittSettings(storage_service_url=url, storage_service_timeout=0.2)
    with pytest.raises(StepFailed) as failed:
        ask(MerrittHttp(settings, own, pause=0.01))
    return failed.value


@pytest.mark.parametrize("ask", [get, post])
def test_a_storage_service_that_is_not_there_is_a_passing_fault(ask: Ask, tmp_path: Path) -> None:
    failure = told(nobody(), ask, tmp_path)

    assert failure.kind is TRANSIENT
    assert failure.message.startswith("the storage service http://127.0.0.1:")
    assert "cannot be reached, or the connection broke" in failure.message


def test_a_storage_service_that_says_nothing_is_a_passing_fault(
    silent: socket.socket, tmp_path: Path
) -> None:
    failure = told(f"http://127.0.0.1:{silent.getsockname()[1]}", get, tmp_path)

    assert failure.kind is TRANSIENT
    assert "did not answer in time" in failure.message


def test_a_change_is_not_begun_at_a_service_that_takes_no_connection(
    silent: socket.socket, tmp_path: Path
) -> None:
    address = silent.getsockname()
    waiting = []
    while True:
        client = socket.socket()
        client.settimeout(0.2)
        waiting.append(client)
        try:
            client.connect(address)
        except TimeoutError:
            break
    failure = told(f"http://127.0.0.1:{address[1]}", post, tmp_path)
    for client in waiting:
        client.close()

    assert failure.kind is TRANSIENT
    assert "did not answer in time" in failure.message


@pytest.mark.parametrize("ask", [get, post])
def test_a_storage_service_without_tls_is_the_operators_to_mend(
    ask: Ask, source: HttpSource, tmp_path: Path
) -> None:
    failure = told(source.url("").replace("http:", "https:"), ask, tmp_path)

    assert isinstance(failure, ServiceDown)
    assert "or does not speak TLS: check ARKLINE_STORAGE_SERVICE_URL" in failure.message


@pytest.mark.parametrize("ask", [get, post])
def test_an_address_that_is_none_is_the_operators_to_mend(ask: Ask, tmp_path: Path) -> None:
    failure = told("nowhere", ask, tmp_path)

    assert isinstance(failure, ServiceDown)
    assert "cannot be contacted (MissingSchema): check ARKLINE_STORAGE_SERVICE_URL" in failure.message


def test_a_refusal_without_a_word_is_told_as_one(silent: socket.socket, tmp_path: Path) -> None:
    def refuse() -> None:
        connection, _ = silent.accept()
        with connection:
            connection.recv(10_000)
            connection.sendall(b"HTTP/1.1 400 \r\nContent-Length: 0\r\n\r\n")

    answering = threading.Thread(target=refuse)
    answering.start()
    failure = told(f"http://127.0.0.1:{silent.getsockname()[1]}", get, tmp_path)
    answering.join()

    assert "answered 400 (no reason given): check ARKLINE_STORAGE_SERVICE_URL" in failure.message


def test_bytes_that_break_off_are_a_passing_fault(source: HttpSource, tmp_path: Path) -> None:
    source.put("/content/a", b"x" * 5000, cut_after=1000)
    failure = told(source.url(""), pieces, tmp_path)

    assert failure.kind is TRANSIENT
    assert "did not deliver a: " in failure.message
