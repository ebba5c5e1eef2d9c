"""Every command of the table asks the API, or stands in the list of what only a host can do."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from entrypoints.cli import api
from entrypoints.cli.command_table import ENTRIES, load
from entrypoints.cli.logins import SavedLogin, SavedLogins, change
from entrypoints.cli.main import app
from entrypoints.cli.reach import HOST_ONLY, refuse_over_api
from pipeline.attempt import Progress
from pipeline.errors import UsageRefused
from tests.support.spelled_commands import FILES

runner = CliRunner()

JID, BID = "jid0000000001", "bid0000000001"
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "submit": ("https://example.org/a.txt", "--profile", "demo"),
    "watch": (BID,),
    "report": (BID,),
    "profile list": (),
    "profile show": ("demo",),
    "profile renew": (BID,),
    "status": (),
    "whoami": (),
    "collection": ("demo",),
    "top": ("--once",),
    "jobs": (),
    "objects": ("--code", "fmt/40"),
    "timeline": (JID,),
    "why": (JID,),
    "recheck": ("ark:/99999/fk4abc",),
    "object": ("ark:/99999/fk4abc",),
    "space": (),
    "check": ("--jobs",),
    "audit": (),
    "hold": (JID,),
    "release": (JID,),
    "resume": (JID,),
    "approve": (JID,),
    "reject": (JID,),
    "fail": (JID,),
    "delete": (JID, "--yes"),
    "cancel": (BID, "--yes"),
    "update-report": (BID,),
    "pause": (),
    "unpause": (),
    "history": (),
    "drain": (),
    "fleet plan": ("--within", "6h"),
    "callback list": (),
    "notify add": ("--mail", "ann@x.edu", "--event", "done"),
    "notify list": (),
    "notify confirm": ("0123456789abcdef", "code"),
    "notify test": ("0123456789abcdef",),
    "notify remove": ("0123456789abcdef",),
    "callback deliver": (JID,),
    "callback test": ("demo",),
    "repair": (JID,),
    "cleanup": (),
    "fixity report": (),
    "export": ("ark:/99999/fk4abc",),
    "reconcile": (),
    "token create": ("scans", "--role", "viewer"),
    "token list": (),
    "token revoke": ("scans",),
}
"""Arguments for every command that asks the API."""


class _Refusing(BaseHTTPRequestHandler):
    """A site that answers every request with a problem that names the request."""

    def _answer(self) -> None:
        token = self.headers["Authorization"].removeprefix("Bearer ")
        detail = f"{token} asked {self.command} {self.path}"
        body = json.dumps({"detail": detail, "kind": "refused"}).encode()
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - names of the library

    def log_message(self, *_: object) -> None:
        """Nothing: the test's output is for failures."""


@pytest.fixture(scope="module")
def site() -> Iterator[dict[str, str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield {"ARKLINE_URL": f"http://127.0.0.1:{server.server_port}", "ARKLINE_TOKEN": "ann"}
        server.shutdown()


def test_progress_with_a_field_of_a_later_release_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = json.dumps({"bytes": 5, "silent_seconds": 3}).encode()
    monkeypatch.setattr(api.Client, "request", lambda *_, **__: answer)

    assert api.Client("http://127.0.0.1:1", "ann").progress(JID) == Progress(bytes=5)


def test_a_command_asks_the_api_or_is_in_a_list() -> None:
    names = {f"{entry.name} {name}".strip() for entry in ENTRIES for name in entry.commands or ("",)}

    assert names == {*ARGUMENTS, *HOST_ONLY, *FILES}, "give arguments for the command above"
    assert not HOST_ONLY & FILES & set(ARGUMENTS)


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_a_command_over_the_api_asks_the_site_with_the_token(name: str, site: dict[str, str]) -> None:
    done = runner.invoke(app, [*name.split(), *ARGUMENTS[name]], env=site)

    assert (done.exit_code, done.stdout) == (2, "")
    assert "error: ann asked " in done.stderr, done.stderr


@pytest.mark.parametrize("name", sorted(HOST_ONLY))
def test_a_command_without_a_route_refuses_and_names_the_remedy(
    name: str, site: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *rest = name.split()
    command = load(first)
    callback = command.commands[rest[0]].callback if rest else command.callback
    for variable, value in site.items():
        monkeypatch.setenv(variable, value)

    with pytest.raises(UsageRefused) as refused:
        callback()

    remedy = "unset ARKLINE_URL and ARKLINE_TOKEN, and run it beside the stack"
    assert str(refused.value) == f"`arkline {name}` is not offered over the API: {remedy}"


def test_in_the_shell_of_a_stack_what_has_no_route_works_beside_it(
    site: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`. var/run/environment` sets the API of the stack and its settings alike."""
    for variable, value in site.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("ARKLINE_STACK_URL", site["ARKLINE_URL"])

    refuse_over_api("`arkline init`")
    assert api.client() is not None

    monkeypatch.setenv("ARKLINE_URL", "https://ingest.example.org")
    with pytest.raises(UsageRefused):
        refuse_over_api("`arkline init`")


def test_a_check_of_all_profiles_says_that_it_would_read_this_machine_while_logged_in_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("ARKLINE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    login = SavedLogins(current="https://ingest.example.org", servers={})
    servers = {login.current: SavedLogin(token="secret")}
    change(lambda _: login.model_copy(update={"servers": servers}))

    done = runner.invoke(app, ["profile", "check"])

    assert done.exit_code == 2
    assert "you are logged in at https://ingest.example.org: name a file" in done.stderr


def test_half_of_the_variables_is_refused_too(site: dict[str, str]) -> None:
    done = runner.invoke(app, ["init"], env={"ARKLINE_URL": site["ARKLINE_URL"]})

    assert (done.exit_code, "unset ARKLINE_URL, and run it" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("profile", "check", "demo"),
    ],
    ids=" ".join,
)
def test_an_option_without_a_route_refuses_and_names_the_remedy(
    arguments: tuple[str, ...], site: dict[str, str]
) -> None:
    done = runner.invoke(app, arguments, env=site)

    assert (done.exit_code, done.stdout) == (2, "")
    assert "is not offered over the API: unset ARKLINE_URL and ARKLINE_TOKEN" in done.stderr


def test_commands_on_files_work_without_any_site(tmp_path: Path) -> None:
    nobody = {"ARKLINE_URL": "http://127.0.0.1:1", "ARKLINE_TOKEN": "ann"}
    profile, table = tmp_path / "harbour.yaml", tmp_path / "a.csv"
    table.write_text("url,name\nhttps://example.org/a.txt,a.txt\n")
    profile.write_text(runner.invoke(app, ["profile", "template", "harbour"], env=nobody).stdout)

    for arguments in (("profile", "check", profile), ("manifest", "from-csv", table)):
        done = runner.invoke(app, [str(word) for word in arguments], env=nobody)
        assert (done.exit_code, "127.0.0.1:1" in done.output) == (0, False), done.output


@pytest.mark.parametrize(
    ("url", "token", "message"),
    [
        ("https://u:SECRET@ingest.example.org", "ann", "ARKLINE_URL has a user or a password"),
        (
            "https://u:SECRET/q@ingest.example.org",
            "ann",
            "'https://...@ingest.example.org' is not",
        ),
        ("ftp://ingest.example.org", "ann", "http and https only"),
        ("https://ingest.example.org", "SECRET\n", "ARKLINE_TOKEN has a space"),
        ("https://ingest.example.org", "SECRET\u2019", "ARKLINE_TOKEN has a space or a sign"),
    ],
)
def test_variables_that_no_site_can_be_asked_with_are_wrong_usage_without_their_secrets(
    url: str, token: str, message: str
) -> None:
    done = runner.invoke(app, ["status"], env={"ARKLINE_URL": url, "ARKLINE_TOKEN": token})

    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert "SECRET" not in done.stderr
