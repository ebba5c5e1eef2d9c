"""`arkline support-bundle`: every secret is planted where a log could have it, and is searched for."""

import base64
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from operations.checks.deployment import initialize
from operations.doctor import bundle, examination
from operations.doctor.redaction import ADDRESS, REMOVED, Redaction
from operations.site import Site
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind
from tests.support import planting
from tests.support.all_settings import FIELDS
from tests.support.fleet import set_variables
from tests.support.operators import ANN
from zkstate.connection.session import Session, connect

NOBODY = 65534

PASSWORDS = {
    name: f'pw/{number}@{name}#ü"&x'
    for number, name in enumerate(sorted(FIELDS))
    if FIELDS[name].annotation is SecretStr
}
"""A value for each secret setting of core and plugins: with the signs that URLs and JSON escape."""

ADDRESSES = ("depositor@library.example.org", "Ann.O'Neil+x@x.edu")
UNKNOWN = (
    "ark_Zm9vYmFyYmF6cXV4",
    "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlMTIzNDU2",
    "AKIA" + "ABCDEFGHIJKLMNOP",
)
"""Tokens that no setting has."""


def texts(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        files = {member.name.partition("/")[2]: opened.extractfile(member) for member in opened.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


@pytest.fixture
def secrets(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """The settings with every secret, in the environment or in a file, and a profile with a key."""
    folder, profiles = tmp_path / "secrets", tmp_path / "profiles"
    for made in (folder, profiles):
        made.mkdir()
    (profiles / "demo.yaml").write_text("naan: '99999'\nshoulder: fk4\n")
    (profiles / "demo.secret").write_text("callback-of-demo-0123456789\n")
    (folder / "arkline_tape_token").write_text("token-of-a-guest-987\n")
    monkeypatch.setenv("ARKLINE_SECRETS", str(folder))
    monkeypatch.setenv("FLOWER_BASIC_AUTH", "arkline:flower-password-77")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    own = {name: SecretStr(value) for name, value in PASSWORDS.items() if name in Settings.model_fields}
    known = settings.model_copy(
        update={**own, "zk_user": "arkline", "profiles": profiles, "operator_mail": ADDRESSES[0]}
    )
    set_variables(monkeypatch, known)
    for name, value in PASSWORDS.items():
        monkeypatch.setenv(f"ARKLINE_{name.upper()}", value)
    monkeypatch.setenv("ARKLINE_INVENTORY_URL", "postgresql://arkline:pg%2Fpass%40word@127.0.0.1:1/arkline")
    return known.model_copy(
        update={"inventory_url": "postgresql://arkline:pg%2Fpass%40word@127.0.0.1:1/arkline"}
    )


EVERY = (
    *PASSWORDS.values(),
    "callback-of-demo-0123456789",
    "token-of-a-guest-987",
    "flower-password-77",
    "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "pg/pass@word",
    *UNKNOWN,
    *ADDRESSES,
)


def forms(secret: str) -> tuple[str, ...]:
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return secret, quote(secret, safe=""), json.dumps(secret)[1:-1], encoded


def test_no_secret_no_token_and_no_address_is_in_the_bundle(secrets: Settings, tmp_path: Path) -> None:
    lines = [f"a message with {form}, and more" for secret in EVERY for form in forms(secret)[:3]]
    lines += [json.dumps({"header": f"Basic {forms(secret)[3]}", "message": secret}) for secret in EVERY]
    lines += [
        "GET https://ann:source-password@x.edu/a?X-Amz-Signature=0123abcdef&size=3",
        'config {"client_secret": "nobody-knows-this-1", "smtp_password": "nobody-knows-this-2"}',
        "Authorization: Bearer dXNlcjpwYXNzd29yZA==",
    ]
    logs = secrets.home / "log"
    logs.mkdir(parents=True)
    (logs / "worker1.log").write_text("\n".join(lines))
    with connect(secrets) as session:
        initialize(Site(secrets.model_copy(update={"inventory_url": ""}), session))
        planting.apply_event(session, planting.one_job(session), Event.FAIL, FailureKind.SYSTEM)
    with examination.opened(secrets) as site:
        view = bundle.write(secrets, ANN, site, tmp_path)

    whole = texts(view.file)
    assert set(whole) >= {
        "README.txt",
        "doctor.json",
        "why.json",
        "failed.json",
        "fleet.json",
        "log/worker1.log",
    }
    others = ("source-password", "dXNlcjpwYXNzd29yZA", "0123abcdef", "nobody-knows-this")
    hits = {
        (name, form)
        for name, text in whole.items()
        for secret in EVERY
        for form in forms(secret)
        if form in text
    }
    assert hits == set()
    assert [(name, one) for name, text in whole.items() for one in others if one in text] == []
    assert whole["log/worker1.log"].count("a message with") == 3 * len(EVERY)
    assert json.loads(whole["settings.json"])["smtp_password"] == REMOVED
    assert view.file.stat().st_mode & 0o077 == 0


def test_the_bundle_says_why_jobs_wait_and_which_failed(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    initialize(Site(settings, session))
    failed = planting.one_job(session)
    planting.apply_event(session, failed, Event.FAIL, FailureKind.SYSTEM)
    with examination.opened(settings) as site:
        whole = texts(bundle.write(settings, ANN, site, tmp_path).file)

    assert [row["jid"] for row in json.loads(whole["failed.json"])] == [failed.jid]
    assert {row["area"] for row in json.loads(whole["doctor.json"])["lines"]} >= {
        "zookeeper",
        "redis",
        "host",
    }
    assert json.loads(whole["fleet.json"])["overview"]["jobs"]["failed"] == 1
    assert json.loads(whole["zookeeper.json"])[0]["mntr"]["zk_server_state"] == "standalone"
    assert json.loads(whole["redis.json"])["role"] == "master"


def test_without_servers_the_other_parts_are_complete(alone: Settings, tmp_path: Path) -> None:
    with examination.opened(alone) as site:
        whole = texts(bundle.write(alone, ANN, site, tmp_path).file)

    assert "does not answer" in json.loads(whole["fleet.json"])
    assert json.loads(whole["versions.json"])["packages"]["kazoo"]


def test_the_bundle_has_the_end_of_a_long_log_and_no_part_of_a_line(alone: Settings, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "web.log").write_text("".join(f"line {number:09}\n" for number in range(100_000)))
    (logs / "one-line.log").write_text("x" * (bundle.LOG + 1))
    for number in range(bundle.LOGS + 5):
        (logs / f"old{number}.log.1").touch()
    with examination.opened(alone) as site:
        view = bundle.write(alone, ANN, site, tmp_path, logs)

    whole = texts(view.file)
    kept = whole["log/web.log"].splitlines() if "log/web.log" in whole else []
    assert sum(name.startswith("log/") for name in whole) == bundle.LOGS
    assert {len(line) for line in kept} <= {len("line 000000000")}
    assert sum(len(text) for text in whole.values()) < bundle.LOGS * bundle.LOG + 10 * bundle.MEMBER


@contextmanager
def as_nobody() -> Iterator[None]:
    """Whoever runs the tests, without the rights of root."""
    own = os.geteuid()
    os.seteuid(own or NOBODY)
    try:
        yield
    finally:
        os.seteuid(own)


def test_a_log_that_cannot_be_read_says_why_and_the_others_are_complete(alone: Settings) -> None:
    with TemporaryDirectory() as folder, examination.opened(alone) as site:
        logs = Path(folder)
        logs.chmod(0o777)
        (logs / "web.log").write_text("one line\n")
        (logs / "root.log").touch(0o000)
        with as_nobody():
            view = bundle.write(alone, ANN, site, logs, logs)
        whole = texts(view.file)

    assert whole["log/web.log"] == "one line\n"
    assert whole["log/root.log"] == "cannot be read: Permission denied"
    assert view.shortened == ("log/root.log",)


def test_the_words_of_a_login_and_the_values_of_settings_stay(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_SESSION_CLASS", "user")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/1000/bus")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Ann of the archive")
    monkeypatch.setenv("ARKLINE_ZK_SESSION_TIMEOUT", "10.0")

    text = '{"path": "/archive/user", "zk_session_timeout": 10.0}'
    assert Redaction(settings)(text) == text


def test_worker_names_stay_and_what_is_short_removes_no_words(settings: Settings) -> None:
    short = settings.model_copy(update={"smtp_password": SecretStr("a")})
    redacted = Redaction(short, ["worker1@host.example.org"])

    text = "worker1@host.example.org met a fault: ann@x.edu, password: hunter22, token = null"
    assert (
        redacted(text)
        == f"worker1@host.example.org met a fault: {ADDRESS}, password: {REMOVED}, token = null"
    )
