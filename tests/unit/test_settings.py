from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import UsageRefused
from pipeline.settings import Settings


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("DEAF_AFTER", "STALLED_AFTER"),
        ("STORAGE_SERVICE_LOOK_AGAIN", "STORAGE_SERVICE_RECHECK_AFTER"),
    ],
)
def test_a_setting_is_read_under_its_earlier_name_too(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    monkeypatch.setenv(f"ARKLINE_{old}", "7")
    assert getattr(Settings(), new.lower()) == 7

    monkeypatch.setenv(f"ARKLINE_{new}", "8")
    assert getattr(Settings(), new.lower()) == 8


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
