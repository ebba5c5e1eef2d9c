import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from entrypoints.cli import context
from pipeline.errors import UsageRefused
from pipeline.settings import GONE, Settings, ignored_settings
from tests.support.all_settings import FIELDS, KINDS


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
    ["redis://:v4lue/x@host:6379/0", "redis://:v4lue%40host/0", "redis://[v4lue", "http://:v4lue@host/0"],
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

    assert ignored_settings() == (
        "ARKLINE_MESSAGE_KEY is ignored: it is no setting any more (messages have no signature)",
    )


def test_no_two_settings_have_one_name() -> None:
    assert len(FIELDS) == sum(len(kind.model_fields) for kind in KINDS)
