"""The snapshot that a batch has of its profile, and the profile restored from it."""

from pathlib import Path

import pytest

from pipeline.profiles.profile import Profile, Profiles
from pipeline.profiles.snapshot import (
    ProfileSnapshot,
    profile_changes,
    public_profile,
    take_snapshot,
    with_secrets,
)

PROFILE = "owner: ark:/99999/fk4o\ncollections: ark:/99999/fk4c\nlimits: {object_files: 3}\n"
CALLBACK = "callback_url: https://ann:first@example.org/told?token=second\n"


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    return Profiles(tmp_path)


def written(profiles: Profiles, text: str) -> Profile:
    (profiles.folder / "demo.yaml").write_text(PROFILE + text)
    return profiles.get("demo")


def stored_snapshot(profile: Profile) -> ProfileSnapshot:
    """As read from its znode."""
    return ProfileSnapshot.model_validate_json(take_snapshot(profile).model_dump_json(exclude_none=True))


def test_a_snapshot_is_restored_whatever_the_file_says_now(profiles: Profiles) -> None:
    before = written(profiles, "priority: 7\ncallback_url: https://example.org/told\n")
    snapshot = stored_snapshot(before)
    written(profiles, "priority: 9\ncallback_url: https://example.com/elsewhere\n")

    assert with_secrets(public_profile(snapshot), profiles) == before


def test_a_snapshot_has_no_secrets_and_the_file_gives_them(profiles: Profiles) -> None:
    snapshot = stored_snapshot(written(profiles, CALLBACK))
    now = written(profiles, f"priority: 9\n{CALLBACK.replace('second', 'third')}")

    assert not any(secret in snapshot.model_dump_json() for secret in ("ann", "first", "second"))
    restored = with_secrets(public_profile(snapshot), profiles)
    assert (restored.callback_url, restored.priority) == (now.callback_url, None)


@pytest.mark.parametrize(
    "file", ["callback_url: https://example.com/told?token=third\n", "owner: nobody\n", None]
)
def test_secrets_of_another_address_are_not_used_and_the_file_is_not_needed(
    profiles: Profiles, file: str | None
) -> None:
    snapshot = stored_snapshot(written(profiles, CALLBACK))
    path = profiles.folder / "demo.yaml"
    path.unlink() if file is None else path.write_text(PROFILE.replace("demo", "") + file)

    assert str(with_secrets(public_profile(snapshot), profiles).callback_url) == "https://example.org/told"


def test_fields_of_a_newer_release_are_ignored(profiles: Profiles) -> None:
    before = written(profiles, "")
    snapshot = stored_snapshot(before)
    newer = {**snapshot.profile, "colour": "blue", "limits": {**snapshot.profile["limits"], "object_hue": 1}}

    assert with_secrets(public_profile(snapshot.model_copy(update={"profile": newer})), profiles) == before


def test_changes_name_the_fields_that_differ(profiles: Profiles) -> None:
    snapshot = stored_snapshot(written(profiles, CALLBACK))
    now = written(profiles, f"priority: 9\n{CALLBACK.replace('second', 'third')}")

    assert profile_changes(snapshot, now) == {"priority": (None, 9)}
    assert profile_changes(None, now)["owner"] == (None, "ark:/99999/fk4o")


def test_a_field_that_an_older_release_did_not_know_is_no_change(profiles: Profiles) -> None:
    profile = written(profiles, "")
    older = {field: value for field, value in profile.public().items() if field not in ("review", "checks")}
    snapshot = stored_snapshot(profile).model_copy(update={"profile": older})

    assert profile_changes(snapshot, profile) == {}
    assert profile_changes(snapshot, written(profiles, "review: true")) == {"review": (False, True)}


def test_a_damaged_snapshot_is_compared_as_it_is(profiles: Profiles) -> None:
    profile = written(profiles, "")
    damaged = stored_snapshot(profile).model_copy(
        update={"profile": {**profile.public(), "priority": "high"}}
    )

    assert profile_changes(damaged, profile) == {"priority": ("high", None)}
