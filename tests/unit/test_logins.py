"""The logins of a user: one file, which nobody else may read, and plain http to this machine alone."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from entrypoints.cli import api, logins
from entrypoints.cli.logins import SavedLogin, SavedLogins
from entrypoints.cli.main import app
from pipeline.errors import UsageRefused

SITE = "https://deposit.example.org"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "arkline" / "logins.json"


def save(url: str, token: str = "ark_secret") -> None:
    login = SavedLogin(token=token, name="anna")
    logins.change(lambda known: SavedLogins(current=url, servers={**known.servers, url: login}))


def test_the_file_and_its_folder_belong_to_their_user_alone(file: Path) -> None:
    before = os.umask(0)
    try:
        save(SITE)
    finally:
        os.umask(before)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "ark_secret" not in repr(logins.read())


def test_commands_ask_the_site_of_the_last_login(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.client() is None
    save("https://other.example.org", "ark_other")
    save(SITE)

    client = api.client()

    assert client is not None
    assert (client.url, client.token, client.source) == (SITE, "ark_secret", f"the login in {file}")
    monkeypatch.setenv("ARKLINE_HOME", "/srv/arkline")
    assert api.client() is None, "in the shell of a stack"


def test_a_change_that_fails_leaves_the_file_as_it_was(file: Path) -> None:
    save(SITE)
    before = file.read_bytes()

    def interrupted(_: SavedLogins) -> SavedLogins:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        logins.change(interrupted)
    file.with_name("logins.json.new").write_text('{"current": "ht')  # what a crash leaves
    assert (file.read_bytes(), logins.read().current) == (before, SITE)
    save("https://other.example.org")
    assert set(logins.read().servers) == {SITE, "https://other.example.org"}


def test_no_login_is_lost_by_another_at_the_same_time(file: Path) -> None:
    sites = [f"https://{number}.example.org" for number in range(20)]
    threads = [threading.Thread(target=save, args=(site,)) for site in sites]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(logins.read().servers) == set(sites)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"servers": {"x": {}}}', "\x00\xff"])
def test_a_damaged_file_is_named_with_what_helps(file: Path, content: str) -> None:
    save(SITE)
    file.write_text(content)

    with pytest.raises(UsageRefused, match=r"it is damaged.*remove it, and log in again"):
        api.client()


def test_a_file_that_others_may_read_is_refused(file: Path) -> None:
    save(SITE)
    file.chmod(0o640)

    with pytest.raises(UsageRefused, match=f"chmod 600 {file}"):
        api.client()


def test_what_a_later_release_wrote_is_read(file: Path) -> None:
    save(SITE)
    written = json.loads(file.read_text())
    file.write_text(json.dumps({**written, "later": 1}))

    assert logins.read().servers[SITE].token == "ark_secret"


@pytest.mark.parametrize(
    "url", ["http://deposit.example.org", "http://10.0.0.1:8080", "http://127.0.0.1.nip.io"]
)
def test_plain_http_to_another_machine_is_refused(url: str) -> None:
    done = CliRunner().invoke(app, ["login", url])

    assert (done.exit_code, "plain http" in done.stderr, "--insecure" in done.stderr) == (2, True, True)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"])
def test_plain_http_to_this_machine_is_asked(url: str) -> None:
    assert CliRunner().invoke(app, ["login", url]).exit_code == 3


@pytest.mark.parametrize(
    "url", ["deposit.example.org", "ftp://x.org", "https://ann:secret@x.org", "https://"]
)
def test_what_is_no_address_of_a_site_is_refused(url: str) -> None:
    done = CliRunner().invoke(app, ["login", url])

    assert (done.exit_code, "secret" in done.stderr) == (2, False)
