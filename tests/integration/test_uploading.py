"""Files on their way to a site: the network is cut, the site asks to wait, the command is interrupted."""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from hashlib import sha512
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from entrypoints.cli import back_off, uploading
from entrypoints.cli.api import Away, Client
from entrypoints.cli.back_off import BackOff
from entrypoints.cli.uploading import SiteUploader
from entrypoints.web.limits import TooMany
from operations.deposits.local_deposit import plan_deposit
from operations.deposits.local_upload import upload_deposit
from pipeline.errors import UsageRefused
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.uploads import stored
from tests.servers.proxy import Proxy
from tests.support import cli
from tests.support.web import Caller, Web, serving
from zkstate.connection.session import Session
from zkstate.record import batches

PIECE = 1 << 20


class Counted:
    """Counts the requests that bring a file; asks to wait at those in `busy`."""

    def __init__(self) -> None:
        self.number = 0
        self.busy: tuple[int, ...] = ()

    def count(self, token_name: str) -> None:
        self.number += 1
        if self.number in self.busy:
            raise TooMany("wait a moment", 1)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploading, "PIECE", PIECE)
    monkeypatch.setattr(back_off, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(back_off, "LONGEST_PAUSE", 0.05)


@pytest.fixture
def web(settings: Settings) -> Iterator[Web]:
    with serving(settings) as running:
        yield running


@pytest.fixture
def requests(web: Web, monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()
    monkeypatch.setattr(web.context.rate_limit_of_files, "count", counted.count)
    return counted


@pytest.fixture
def ada(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, ["demo"], name="ada")


@pytest.fixture
def proxy(web: Web) -> Iterator[Proxy]:
    with Proxy(urlsplit(web.url).port or 0) as between:
        yield between


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Small files, one of the size of a piece, and one of several pieces."""
    folder = tmp_path / "scans"
    folder.mkdir()
    for name, size in {"a": 0, "b": 10, "c": PIECE, "d": 5 * PIECE + 3, "e": 1}.items():
        (folder / f"{name}.tif").write_bytes(os.urandom(size))
    return folder


def uploader(caller: Caller, proxy: Proxy | None = None) -> tuple[SiteUploader, list[str]]:
    reasons: list[str] = []
    url = caller.url if proxy is None else f"http://{proxy.hosts}"
    return SiteUploader(Client(url, caller.token), BackOff(reasons.append)), reasons


def arrived(settings: Settings, url: str, scans: Path) -> bool:
    """Whether the upload has the files of the folder, and no others."""
    upload = url.removeprefix("upload:").partition("/")[0]
    has = {file.name: file.sha512 for file in stored.files(settings.uploads_folder, upload)}
    del has["manifest.checkm"]
    return has == {f"files/{path.name}": sha512(path.read_bytes()).hexdigest() for path in scans.iterdir()}


def at(*moments: int, do: Callable[[], None]) -> tuple[Callable[[int], None], list[int]]:
    """An `on_bytes` that acts once so many bytes are sent; and what it has counted."""
    counted, left = [0], list(moments)

    def on_bytes(size: int) -> None:
        counted[0] += size
        if left and counted[0] >= left[0]:
            left.pop(0)
            do()

    return on_bytes, counted


def test_files_continue_where_the_network_was_cut(
    settings: Settings, ada: Caller, proxy: Proxy, scans: Path
) -> None:
    on_bytes, counted = at(5, PIECE // 2, 2 * PIECE, 4 * PIECE + PIECE // 3, do=proxy.cut)
    to, _ = uploader(ada, proxy)

    payload = upload_deposit(plan_deposit(scans), to, on_bytes=on_bytes)

    assert arrived(settings, payload.url, scans)
    assert counted[0] == sum(path.stat().st_size for path in scans.iterdir())


def test_a_file_whose_last_answer_was_lost_has_arrived(
    requests: Counted, ada: Caller, proxy: Proxy, scans: Path
) -> None:
    to, reasons = uploader(ada, proxy)
    large = scans / "d.tif"
    proxy.swallow_after(b"Upload-Complete: ?1")

    def reconnect() -> None:
        assert proxy.swallowed.wait(20)
        proxy.cut()

    network = threading.Thread(target=reconnect)
    network.start()
    payload = upload_deposit(plan_deposit(large), to)
    network.join()

    assert payload.digest.value == sha512(large.read_bytes()).hexdigest()
    assert (requests.number, len(reasons)) == (6, 1)


def test_a_site_that_asks_to_wait_is_waited_for(
    settings: Settings, requests: Counted, ada: Caller, scans: Path
) -> None:
    requests.busy = (2, 5)
    to, reasons = uploader(ada)

    payload = upload_deposit(plan_deposit(scans), to)

    assert arrived(settings, payload.url, scans)
    assert reasons == ["wait a moment"] * 2


def test_a_site_that_stays_away_ends_the_command_once_nothing_has_arrived_for_long(
    ada: Caller, proxy: Proxy, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_off, "LONGEST_AWAY", 0.2)
    on_bytes, _ = at(PIECE, do=proxy.refuse)
    to, reasons = uploader(ada, proxy)

    with pytest.raises(Away, match="does not answer"):
        upload_deposit(plan_deposit(scans), to, on_bytes=on_bytes)

    assert len(reasons) == 1


def test_a_network_that_lets_questions_pass_and_no_bytes_counts_as_away(
    ada: Caller, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_off, "LONGEST_AWAY", 0.2)
    to, reasons = uploader(ada)

    def swallow(method: str, *given: object, **named: object) -> bytes:
        raise Away("the connection was reset")

    upload = to.begin("")
    monkeypatch.setattr(Client, "request", swallow)
    with pytest.raises(Away, match="reset"):
        to.put(upload, "files/d.tif", lambda start: iter(()), 5 * PIECE)

    assert reasons == ["the connection was reset"]


def test_a_file_that_changes_while_it_is_sent_is_refused_by_its_name(ada: Caller, scans: Path) -> None:
    for change in (lambda file: file.write(b"more"), lambda file: file.truncate(2 * PIECE)):
        deposit = plan_deposit(scans)

        def grow(change: Callable[..., object] = change) -> None:
            with (scans / "d.tif").open("r+b") as file:
                file.seek(0, os.SEEK_END)
                change(file)

        on_bytes, _ = at(2 * PIECE, do=grow)
        with pytest.raises(UsageRefused, match=r"d\.tif has changed since it was listed"):
            upload_deposit(deposit, uploader(ada)[0], on_bytes=on_bytes)


def test_a_file_that_the_site_refuses_is_not_sent_again(
    web: Web, settings: Settings, tmp_path: Path, scans: Path
) -> None:
    with serving(settings.model_copy(update={"upload_bytes": 2 * PIECE})) as strict:
        to, reasons = uploader(strict.caller(Role.DEPOSITOR, ["demo"], name="eve"))

        with pytest.raises(UsageRefused, match="accepted for one file"):
            upload_deposit(plan_deposit(scans), to)

    assert reasons == []


def test_a_command_that_was_interrupted_continues_with_what_has_not_arrived(
    requests: Counted,
    session: Session,
    settings: Settings,
    alone: Settings,
    ada: Caller,
    proxy: Proxy,
    scans: Path,
) -> None:
    command = ("submit", str(scans), "--profile", "demo")
    proxy.swallow_after(b"/files/c.tif")

    with cli.start(alone, *command, ARKLINE_URL=f"http://{proxy.hosts}", ARKLINE_TOKEN=ada.token) as first:
        assert proxy.swallowed.wait(60)
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=60)
    printed = re.search(r"repeat the command with (--idempotency-key \w+)", err)
    assert (out, first.returncode, printed is None) == ("", 130, False), err
    assert printed is not None
    proxy.cut()
    before = requests.number
    done = cli.run(alone, *command, *printed[1].split(), ARKLINE_URL=ada.url, ARKLINE_TOKEN=ada.token)

    assert done.code == 0, done.err
    bid = done.out.strip()
    assert arrived(settings, batches.load(session, bid).submission.payload_url, scans)
    assert (before, requests.number - before) == (3, 3)  # d, e and the manifest


def test_a_corrected_file_replaces_the_one_that_had_arrived(
    settings: Settings, requests: Counted, ada: Caller, scans: Path
) -> None:
    upload_deposit(plan_deposit(scans), uploader(ada)[0], "monday")
    before = requests.number
    (scans / "b.tif").write_bytes(b"corrected")

    payload = upload_deposit(plan_deposit(scans), uploader(ada)[0], "monday")

    assert arrived(settings, payload.url, scans)
    assert requests.number - before == 2  # the file and the manifest
