"""What a batch keeps of its profile, and how it comes back."""

from pathlib import Path

import pytest

from pipeline.profiles.profile import Profile, Profiles
from pipeline.profiles.snapshot import ProfileSnapshot, changes, keep, restore

PROFILE = "owner: ark:/99999/fk4o\ncollections: ark:/99999/fk4c\nlimits: {object_files: 3}\n"
CALLBACK = "callback_url: https://ann:first@example.org/told?token=second\n"


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    return Profiles(tmp_path)


def written(profiles: Profiles, text: str) -> Profile:
    (profiles.folder / "demo.yaml").write_text(PROFILE + text)
    return profiles.get("demo")


def kept(profile: Profile) -> ProfileSnapshot:
    """As it comes back from its znode."""
    return ProfileSnapshot.model_validate_json(keep(profile).model_dump_json(exclude_none=True))


def test_what_was_kept_comes_back_whatever_the_file_says_by_now(profiles: Profiles) -> None:
    before = written(profiles, "priority: 7\ncallback_url: https://example.org/told\n")
    found = kept(before)
    written(profiles, "priority: 9\ncallback_url: https://example.com/elsewhere\n")

    assert restore(found, profiles) == before


def test_no_secret_is_kept_and_those_of_the_file_are_used(profiles: Profiles) -> None:
    found = kept(written(profiles, CALLBACK))
    now = written(profiles, f"priority: 9\n{CALLBACK.replace('second', 'third')}")

    assert not any(secret in found.model_dump_json() for secret in ("ann", "first", "second"))
    restored = restore(found, profiles)
    assert (restored.callback_url, restored.priority) == (now.callback_url, None)


@pytest.mark.parametrize(
    "file", ["callback_url: https://example.com/told?token=third\n", "owner: nobody\n", None]
)
def test_no_secret_of_another_address_is_used_nor_is_the_file_needed(
    profiles: Profiles, file: str | None
) -> None:
    found = kept(written(profiles, CALLBACK))
    path = profiles.folder / "demo.yaml"
    path.unlink() if file is None else path.write_text(PROFILE.replace("demo", "") + file)

    assert str(restore(found, profiles).callback_url) == "https://example.org/told"


def test_fields_of_a_newer_release_are_ignored(profiles: Profiles) -> None:
    before = written(profiles, "")
    found = kept(before)
    newer = {**found.profile, "colour": "blue", "limits": {**found.profile["limits"], "object_hue": 1}}

    assert restore(found.model_copy(update={"profile": newer}), profiles) == before


def test_changes_name_the_fields_that_differ(profiles: Profiles) -> None:
    found = kept(written(profiles, CALLBACK))
    now = written(profiles, f"priority: 9\n{CALLBACK.replace('second', 'third')}")

    assert changes(found, now) == {"priority": (None, 9)}
    assert changes(None, now)["owner"] == (None, "ark:/99999/fk4o")
