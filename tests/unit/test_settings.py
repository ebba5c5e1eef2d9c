import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.hosts import collect_hosts
from pydantic import ValidationError

from entrypoints.cli import context
from pipeline.errors import UsageRefused
from pipeline.settings import GONE, Settings, ignored_settings, read_settings
from tests.support.all_settings import FIELDS, KINDS
from tests.support.fleet import PROJECT


def test_a_setting_is_read_under_its_earlier_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARKLINE_DEAF_AFTER", "7")
    assert Settings().stalled_after == 7

    monkeypatch.setenv("ARKLINE_STALLED_AFTER", "8")
    assert Settings().stalled_after == 8


def test_what_the_caller_gives_goes_before_a_variable_under_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARKLINE_STALLED_AFTER", "7")
    monkeypatch.setenv("ARKLINE_DEAF_AFTER", "8")

    assert Settings(stalled_after=9).stalled_after == 9
    assert Settings.model_validate({"ARKLINE_DEAF_AFTER": 10}).stalled_after == 10


def test_the_name_of_a_variable_may_be_in_small_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("arkline_home", "/data")

    assert Settings().home == Path("/data")


def test_a_file_of_secrets_has_a_value_that_no_variable_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "arkline_zk_user").write_text("archive\n")
    (tmp_path / "arkline_zk_password").write_text("of the file\n")
    monkeypatch.setenv("ARKLINE_SECRETS", str(tmp_path))
    assert Settings().zk_password.get_secret_value() == "of the file"

    monkeypatch.setenv("ARKLINE_ZK_PASSWORD", "of the variable")
    assert Settings().zk_password.get_secret_value() == "of the variable"


def test_a_mounted_secret_is_read_through_links_inside_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "arkline_log_level").write_text("DEBUG")
    (tmp_path / "arkline_log_level").symlink_to(Path("..data") / "arkline_log_level")
    monkeypatch.setenv("ARKLINE_SECRETS", str(tmp_path))

    assert Settings().log_level == "DEBUG"


def test_a_link_out_of_the_folder_of_secrets_is_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (tmp_path / "elsewhere").write_text("DEBUG")
    (folder / "arkline_log_level").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("ARKLINE_SECRETS", str(folder))

    with pytest.warns(UserWarning, match="resolves outside"):
        assert Settings().log_level == "INFO"


def test_a_missing_folder_of_secrets_is_a_warning_and_a_file_in_its_place_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ARKLINE_SECRETS", str(tmp_path / "absent"))
    with pytest.warns(UserWarning, match='absent" does not exist'):
        Settings()

    (tmp_path / "absent").write_text("")
    with pytest.raises(UsageRefused, match="which is no folder"):
        Settings()


def test_only_variables_with_the_prefix_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLED_AFTER", "7")

    assert Settings().stalled_after == Settings.model_fields["stalled_after"].default


@pytest.mark.parametrize(
    ("settings", "use"),
    [
        (Settings(), lambda settings: settings.working),
        (Settings(home=Path("data")), lambda settings: settings.inventory),
        (Settings(home=Path("/data"), storage_root=Path("ocfl")), lambda settings: settings.storage),
        (Settings(inventory_url="sqlite:///inventory.sqlite"), lambda settings: settings.inventory),
    ],
)
def test_a_relative_folder_is_refused_outside_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings, use: Callable[[Settings], object]
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageRefused, match="is the relative path"):
        use(settings)
    assert Settings(home=tmp_path).working == tmp_path / "working"


@pytest.mark.parametrize(
    "url",
    [
        "redis://:v4lue/x@host:6379/0",
        "redis://:v4lue%40host/0",
        "redis://[v4lue",
        "http://:v4lue@host/0",
        "redis://:v4lue@host/banana",
        "redis://:v4lue@host/0?foo=bar",
        "redis://:v4lue#w@host:6379/0",
        "redis://:v4lue@/0",
    ],
)
def test_a_broker_url_that_cannot_be_read_is_refused_without_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARKLINE_BROKER_URL", url)

    with pytest.raises(ValidationError, match="write redis://") as invalid:
        Settings()
    with pytest.raises(UsageRefused, match="write redis://") as refusal:
        context.settings()

    assert "v4lue" not in f"{invalid.value} {refusal.value}"


def test_a_setting_of_an_earlier_release_is_ignored_with_one_line_at_the_start() -> None:
    program = "from tasks import logs; logs.configure(); logs.configure()"  # as the processes of a worker do
    started = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ARKLINE_CONTAINER_BYTES": "1000"},
        capture_output=True,
        text=True,
        check=True,
    )

    (line,) = [line for line in started.stderr.splitlines() if "CONTAINER_BYTES" in line]
    assert "ARKLINE_CONTAINER_BYTES is ignored" in line
    assert "(now ARKLINE_OBJECT_BYTES)" in line


def test_an_earlier_setting_is_none_now_and_names_one_that_is() -> None:
    fields = {f"ARKLINE_{name.upper()}" for name in FIELDS}

    assert not fields & {f"ARKLINE_{name}" for name in GONE}
    assert set(re.findall(r"ARKLINE_\w+", " ".join(GONE.values()))) <= fields


def test_a_key_for_messages_that_is_still_set_is_named_without_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ARKLINE_MESSAGE_KEY", "s3cret")

    assert [*ignored_settings()] == [
        "ARKLINE_MESSAGE_KEY is ignored: it is no setting any more (messages have no signature)"
    ]


def test_a_misspelled_setting_is_named_with_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARKLINE_INVENTORY", "postgresql://a:s3cret@db/inventory")

    assert [*ignored_settings()] == [
        "ARKLINE_INVENTORY is ignored: it is no setting; did you mean ARKLINE_INVENTORY_URL?"
    ]


def test_variables_of_plugins_of_commands_and_of_the_compose_file_are_no_misspelled_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = [*(PROJECT / "entrypoints").rglob("*.py"), PROJECT / "docker-compose.yml", PROJECT / "Dockerfile"]
    named = {name for file in files for name in re.findall(r"ARKLINE_[A-Z0-9_]*[A-Z0-9]", file.read_text())}
    for name in named | {f"ARKLINE_{field.upper()}" for field in FIELDS}:
        monkeypatch.setenv(name, "value")

    assert [message for message in ignored_settings() if "did you mean" in message] == []


def test_no_two_settings_have_one_name() -> None:
    assert len(FIELDS) == sum(len(kind.model_fields) for kind in KINDS)


@pytest.mark.parametrize(
    ("written", "servers"),
    [
        ("zk1", [("zk1", 2181)]),
        ("zk1:2281, zk2:2282,10.0.0.1", [("zk1", 2281), ("zk2", 2282), ("10.0.0.1", 2181)]),
        ("[fd00::1]:2281,[::1]", [("fd00::1", 2281), ("::1", 2181)]),
        ("zk1:2181/ark", [("zk1", 2181)]),
    ],
)
def test_servers_of_zookeeper_are_read_as_kazoo_reads_them(
    written: str, servers: list[tuple[str, int]]
) -> None:
    assert list(Settings(zk_hosts=written).zk_servers) == servers == collect_hosts(written)[0]


@pytest.mark.parametrize(
    "written",
    ["", "::1", "zk1:a", "zk1:99999", "zk1:", "zk1,,zk2", "zk1;zk2", "zk1 ,zk2", "me@zk1", "http://zk1:2181"],
)
def test_what_names_no_server_of_zookeeper_is_refused(written: str) -> None:
    with pytest.raises(ValidationError, match="names no server: write host:port"):
        Settings(zk_hosts=written)


def test_a_root_is_the_path_of_a_znode() -> None:
    assert [Settings(zk_root=written).zk_root for written in ("/", "/a/b", "/a/")] == ["/", "/a/b", "/a/"]
    for written in ("", "a", "/a//b", "/a b"):
        with pytest.raises(ValidationError, match="write the path of a znode"):
            Settings(zk_root=written)


def test_what_is_wrong_is_named_alone_and_in_our_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARKLINE_ZK_ROOT", "a")
    monkeypatch.setenv("ARKLINE_IN_FLIGHT", "0")

    with pytest.raises(UsageRefused) as refused:
        read_settings(Settings)

    assert str(refused.value) == (
        "ARKLINE_ZK_ROOT: write the path of a znode, as /arkline; "
        "ARKLINE_IN_FLIGHT: Input should be greater than or equal to 1"
    )


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://h",
        "redis://h:1/?db=2",
        "unix:///run/redis.sock?db=1",
        "rediss://user:%2Fa%40b@h:6380/0?ssl_cert_reqs=required&ssl_ca_certs=/etc/ca.pem&socket_timeout=5",
    ],
)
def test_a_broker_url_of_every_form_is_accepted(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("ARKLINE_BROKER_URL", url)

    assert Settings().broker_url == url


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ZK_SESSION_TIMEOUT", "0.001"),
        ("ZK_SESSION_TIMEOUT", "1e9"),
        ("ZK_SESSION_TIMEOUT", "inf"),
        ("ZK_SESSION_TIMEOUT", "nan"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_a_value_with_which_no_process_starts_is_refused_by_the_name_of_its_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"ARKLINE_{name}", value)

    with pytest.raises(UsageRefused, match=f"ARKLINE_{name}"):
        context.settings()


def test_a_log_level_is_understood_in_small_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARKLINE_LOG_LEVEL", "warning")

    assert Settings().log_level == "WARNING"
