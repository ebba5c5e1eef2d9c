"""A stored file on its way to the command line: the network is cut, the file is damaged or replaced."""

import os
from collections.abc import Callable, Iterator
from hashlib import sha512
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sqlalchemy import text

from entrypoints.cli import back_off
from entrypoints.cli.api import Away, Client
from entrypoints.cli.back_off import BackOff
from entrypoints.cli.downloading import received
from entrypoints.web.receiving import written
from pipeline.errors import ArklineError, UsageRefused
from pipeline.outcome import DamagedObject
from pipeline.preservation.received_bag import receive_bag
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.servers import base
from tests.servers.base import Handler
from tests.servers.proxy import Proxy
from tests.support.repository import Repository, empty_inventory
from tests.support.stores import Store, flip
from tests.support.web import Caller, Web, serving

SIZE = 24 << 20
"""Bytes: more than the buffers of the connections keep."""

SCAN = os.urandom(SIZE)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(back_off, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(back_off, "LONGEST_PAUSE", 0.05)


@pytest.fixture
def store(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    repository = Repository(settings.home, empty_inventory(tmp_path_factory.mktemp("inventory")))
    yield Store(repository)
    repository.close()


def stored(store: Store, number: int, scan: bytes, **facts: str) -> str:
    """The ARK of an object whose new version has this file."""
    return store.repository.recorded(store.repository.job(number, {"scan.tif": scan}, **facts)).ark


@pytest.fixture
def ark(store: Store) -> str:
    return stored(store, 1, SCAN)


@pytest.fixture
def web(settings: Settings, ark: str) -> Iterator[Web]:
    with serving(settings) as running:
        yield running


@pytest.fixture
def ada(web: Web) -> Caller:
    return web.caller(Role.ADMIN)


@pytest.fixture
def proxy(web: Web) -> Iterator[Proxy]:
    with Proxy(urlsplit(web.url).port or 0) as between:
        yield between


def file_of(ark: str) -> str:
    return f"/v1/objects/{ark}/versions/current/files/producer/scan.tif"


def downloaded(site: Client, path: str, *moments: tuple[int, Callable[[], None]]) -> tuple[bytes, list[str]]:
    """The file, and the reasons of all waits; each of `moments` acts once so many bytes have arrived."""
    reasons, left = list[str](), list(moments)

    def on_read(arrived: int, size: int) -> None:
        assert arrived <= size == SIZE
        if left and arrived >= left[0][0]:
            left.pop(0)[1]()

    return b"".join(received(site, path, BackOff(reasons.append), on_read)), reasons


def cut_twice(proxy: Proxy) -> tuple[list[str], Callable[[int, int], None]]:
    """The reasons of all waits, and what cuts the first two connections at their first bytes.

    Later, the buffers of a connection may hold all of the rest.
    """
    reasons, cuts = list[str](), list[int]()

    def on_read(arrived: int, size: int) -> None:
        assert arrived <= size
        if len(reasons) == len(cuts) < 2:
            cuts.append(arrived)
            proxy.cut()

    return reasons, on_read


def test_a_download_continues_although_the_site_sends_only_whole_files_meanwhile(
    store: Store, ark: str, ada: Caller, proxy: Proxy
) -> None:
    """... because a check has found damage in another file of the object."""

    def find_damage_and_cut() -> None:
        damage = text("UPDATE inv_fixities SET damaged = 1")
        store.repository.inventory.database.write(lambda connection: connection.execute(damage))
        proxy.cut()

    site = Client(f"http://{proxy.hosts}", ada.token)

    scan, reasons = downloaded(site, file_of(ark), (1 << 20, find_damage_and_cut))

    assert scan == SCAN
    assert len(reasons) == 1


def test_a_download_continues_where_the_network_was_cut(ark: str, ada: Caller, proxy: Proxy) -> None:
    site = Client(f"http://{proxy.hosts}", ada.token)

    reasons, on_read = cut_twice(proxy)

    data = b"".join(received(site, file_of(ark), BackOff(reasons.append), on_read))

    assert data == SCAN
    assert len(reasons) == 2


def test_a_bag_continues_where_the_network_was_cut(
    ark: str, ada: Caller, proxy: Proxy, tmp_path: Path
) -> None:
    site = Client(f"http://{proxy.hosts}", ada.token)
    reasons, on_read = cut_twice(proxy)
    path = f"/v1/objects/{ark}/versions/1/bag"
    pieces = received(site, path, BackOff(reasons.append), on_read, has_manifest=True)

    receive_bag(pieces, tmp_path / "bag")

    assert (tmp_path / "bag" / "data" / "producer" / "scan.tif").read_bytes() == SCAN
    assert len(reasons) == 2


def test_a_site_that_stays_away_ends_the_download(
    ark: str, ada: Caller, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_off, "LONGEST_AWAY", 0.2)
    site = Client(f"http://{proxy.hosts}", ada.token)

    def go() -> None:
        proxy.refuse()
        proxy.cut()

    with pytest.raises(Away, match="does not answer"):
        downloaded(site, file_of(ark), (1, go))


def test_a_damaged_file_is_no_file_however_it_arrives(
    ark: str, web: Web, store: Store, ada: Caller, proxy: Proxy
) -> None:
    store.change(ark, "v1/content/producer/scan.tif", flip)

    with pytest.raises(DamagedObject, match="another digest than the site states"):
        downloaded(Client(web.url, ada.token), file_of(ark))
    with pytest.raises(DamagedObject, match="another digest than the site states"):
        downloaded(Client(f"http://{proxy.hosts}", ada.token), file_of(ark), (SIZE // 2, proxy.cut))


def test_of_a_damaged_file_the_copy_of_the_repository_is_named_and_what_to_do(
    ark: str, web: Web, store: Store, ada: Caller
) -> None:
    store.change(ark, "v1/content/producer/scan.tif", flip)
    reasons = list[str]()
    pieces = received(Client(web.url, ada.token), file_of(ark), BackOff(reasons.append), lambda *_: None)

    with pytest.raises(DamagedObject) as refused:
        list(pieces)

    assert "the repository's copy is damaged, or it was changed on the way" in str(refused.value)
    assert f"`arkline object {ark}`" in str(refused.value)
    (reason,) = reasons
    assert f"of {SIZE:,} bytes: the connection was cut, or the repository's copy is damaged" in reason
    assert "check the network" not in reason


def test_a_file_that_is_too_short_in_storage_is_not_waited_for(
    ark: str, web: Web, store: Store, ada: Caller
) -> None:
    store.change(ark, "v1/content/producer/scan.tif", lambda data: data[: SIZE // 2])

    with pytest.raises(ArklineError, match="shorter in storage than when it was stored"):
        downloaded(Client(web.url, ada.token), file_of(ark))


class EndsEarly(Handler):
    """A site whose disk cannot read the second half."""

    def do_GET(self) -> None:  # noqa: N802 - named by the library
        rest = "Range" in self.headers
        self.send_response(206 if rest else 200)
        self.send_header("Content-Length", str(SIZE // 2 if rest else SIZE))
        self.send_header("ETag", '"scan"')
        self.send_header("Repr-Digest", written(sha512(SCAN).hexdigest()))
        self.end_headers()
        if not rest:
            self.wfile.write(SCAN[: SIZE // 2])


def test_a_site_that_always_ends_the_file_at_the_same_place_is_not_asked_for_an_hour() -> None:
    with base.serving(EndsEarly) as port:
        site = Client(f"http://127.0.0.1:{port}", "token")

        with pytest.raises(DamagedObject, match=f"after {SIZE // 2:,} of {SIZE:,} bytes"):
            downloaded(site, "/scan.tif")


def test_a_new_version_in_the_middle_of_a_download_ends_it(
    ark: str, store: Store, ada: Caller, proxy: Proxy
) -> None:
    site = Client(f"http://{proxy.hosts}", ada.token)

    def replace() -> None:
        stored(store, 2, b"another", primary_id=ark)
        proxy.cut()

    with pytest.raises(UsageRefused, match="has changed"):
        downloaded(site, file_of(ark), (1, replace))
