import pytest

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
