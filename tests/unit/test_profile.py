from pathlib import Path

import pytest
import yaml
from sqlalchemy import Column, String

from pipeline.errors import Action, Remedy
from pipeline.inventory import tables
from pipeline.profiles.profile import ProfileError, Profiles, Suppression, UnknownProfile, read_profile
from pipeline.records import ResponseType

DEMO = {"name": "demo", "owner": "ark:/99999/fk4o", "collections": ["ark:/99999/fk4c"]}
EXAMPLES = Path(__file__).parents[2] / "examples" / "profiles"


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    return Profiles(tmp_path)


def put(profiles: Profiles, file: str = "demo.yaml", /, **changes: object) -> None:
    fields = {key: value for key, value in {**DEMO, **changes}.items() if value is not None}
    (profiles.folder / file).write_text(yaml.safe_dump(fields))


def refusal(profiles: Profiles, name: str = "demo") -> str:
    with pytest.raises(ProfileError) as caught:
        profiles.get(name)
    assert "pydantic" not in str(caught.value)
    return str(caught.value)


def test_a_profile_of_three_fields_has_a_default_for_every_other(profiles: Profiles) -> None:
    put(profiles)
    profile = profiles.get("demo")

    assert (profile.owner, profile.collections) == ("ark:/99999/fk4o", ("ark:/99999/fk4c",))
    assert (profile.naan, profile.shoulder, profile.priority) == ("99999", "fk4", None)
    assert profile.sends_report
    assert profile.limits.object_bytes is None


def test_every_field_can_be_given(profiles: Profiles) -> None:
    put(
        profiles,
        description="A town's archive",
        naan=12345,
        shoulder="x9",
        identifier_scheme="ark",
        minter="ezid",
        ezid_co_owner="town",
        notification="one@x.edu",
        notification_suppression="full",
        notification_format="xml",
        callback_url="https://x.edu/callback",
        priority=3,
        suppress_dublin_core_local_id=True,
        case_sensitive_names=True,
        storage_node=7777,
        context="town",
        retention_days=0,
        limits={"object_bytes": 10, "object_files": 20, "batch_jobs": 30},
    )
    profile = profiles.get("demo")

    assert profile.naan == "12345"
    assert profile.notification == ("one@x.edu",)
    assert profile.notification_suppression is Suppression.FULL
    assert not profile.sends_report
    assert profile.notification_format is ResponseType.XML
    assert profile.limits.batch_jobs == 30


def test_a_profile_without_a_name_has_that_of_its_file(profiles: Profiles) -> None:
    put(profiles, name=None)

    assert profiles.get("demo").name == "demo"


def test_a_changed_file_counts_at_once(profiles: Profiles) -> None:
    put(profiles)
    profiles.get("demo")
    put(profiles, priority=9)

    assert profiles.get("demo").priority == 9


def test_the_names_are_those_of_the_files(profiles: Profiles) -> None:
    for name in ("b.yaml", "a.txt", "merritt_content", ".hidden", "README.md", "c.yaml.bak"):
        put(profiles, name)
    (profiles.folder / "folder").mkdir()

    assert profiles.names() == ("a", "b", "merritt_content")


def test_the_examples_are_good_profiles() -> None:
    profiles = Profiles(EXAMPLES)

    assert [profiles.get(name).name for name in profiles.names()] == list(profiles.names())
    assert profiles.names()


def test_an_unknown_profile_is_refused_with_the_nearest(profiles: Profiles) -> None:
    put(profiles)
    with pytest.raises(UnknownProfile, match=r"no profile 'dmeo'; did you mean demo\?"):
        profiles.get("dmeo")


def test_the_refusal_of_an_unknown_profile_lists_no_others_and_no_path(profiles: Profiles) -> None:
    put(profiles)
    with pytest.raises(UnknownProfile, match="use the name of one of this site") as refused:
        profiles.get("something")
    assert "demo" not in str(refused.value)
    assert str(profiles.folder) not in str(refused.value)
    assert refused.value.remedies == (Remedy(Action.SHOW_PROFILES),)


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/../demo", "..", ".", "", "demo.yaml", "demo\n", "\0", "x" * 5000]
)
def test_a_name_never_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    profiles = Profiles(tmp_path / "profiles")
    profiles.folder.mkdir()
    put(profiles)
    (tmp_path / "secret.yaml").write_text("name: secret")
    with pytest.raises(UnknownProfile) as caught:
        profiles.get(name)

    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="set ARKLINE_PROFILES"):
        Profiles(tmp_path / "none").get("demo")


MALFORMED: dict[str, tuple[dict[str, object], str]] = {
    "no owner": ({"owner": None}, "owner is missing; expected an ARK such as"),
    "an owner that is no ARK": ({"owner": "me"}, "'me' is not valid for owner; expected an ARK such as"),
    "no collection": ({"collections": []}, "[] is not valid for collections; expected a list"),
    "a collection that is no ARK": ({"collections": ["x"]}, "'x' is not valid for collections"),
    "a priority out of range": ({"priority": 100}, "100 is not valid for priority; expected a number from 0"),
    "a mistyped field": ({"prioriti": 3}, "prioriti is not a field; did you mean priority?"),
    "a strange field": ({"xyzzy": 3}, "xyzzy is not a field; remove the line"),
    "a mail address that is none": ({"notification": ["me"]}, "'me' is not valid for notification"),
    "another name than its file": (
        {"name": "other"},
        "the name is other, but the file is named demo: use the same name",
    ),
    "a strange limit": ({"limits": {"object_byte": 1}}, "limits.object_byte is not a field; did you mean"),
    "a limit of nothing": ({"limits": {"batch_jobs": 0}}, "0 is not valid for limits.batch_jobs; expected a"),
    "a source that is a URL": (
        {"sources": ["https://x.org"]},
        "'https://x.org' is not valid for sources; expected a list of hosts",
    ),
    "limits that are none": ({"limits": 5}, "5 is not valid for limits; expected object_bytes"),
    "a mail that is sent and suppressed": (
        {"confirmation_mail": True, "notification_suppression": "partial"},
        "confirmation_mail is true, but notification_suppression: partial suppresses that mail",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_profile_is_refused_naming_file_and_field_for(case: str, profiles: Profiles) -> None:
    changes, said = MALFORMED[case]
    put(profiles, **changes)
    message = refusal(profiles)

    assert message.startswith("profile demo.yaml: ")
    assert said in message


def test_all_faults_of_a_profile_are_listed(profiles: Profiles) -> None:
    put(profiles, owner=None, priority="high", naan="x")
    message = refusal(profiles)

    assert all(field in message for field in ("owner", "priority", "naan"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "profile demo.yaml, line 1: "),
        ("name: demo\n\towner: x", "demo.yaml, line 2: "),
        ("- a\n- list", "has no 'field: value' lines"),
        ("", "has no 'field: value' lines"),
        ("context: 2020-13-45", "is not YAML"),
        ("name: \x07", "is not YAML"),
        ("!!python/object/apply:os.getcwd []", "demo.yaml, line 1: "),
    ],
)
def test_a_file_that_is_not_a_yaml_mapping_is_refused(text: str, said: str, profiles: Profiles) -> None:
    (profiles.folder / "demo.yaml").write_text(text)

    assert said in refusal(profiles)


def test_a_file_that_is_not_utf8_is_refused(profiles: Profiles) -> None:
    (profiles.folder / "demo.yaml").write_bytes(b"name: \xff")

    assert "profile demo.yaml is not UTF-8: save the file as UTF-8" in refusal(profiles)


def test_an_unreadable_file_is_refused(profiles: Profiles) -> None:
    with pytest.raises(ProfileError) as caught:
        read_profile(profiles.folder / "demo.yaml")

    assert "profile demo.yaml cannot be read: [Errno 2]" in str(caught.value)


def test_one_profile_in_two_files_is_refused(profiles: Profiles) -> None:
    put(profiles)
    (profiles.folder / "demo.txt").write_text("ProfileID: demo")

    assert "is in 2 files (demo.yaml, demo.txt): keep one of them" in refusal(profiles)


def test_the_secrets_of_a_callback_are_never_shown(profiles: Profiles) -> None:
    put(profiles, callback_url="https://me:secret@x.edu/callback?token=secret")
    profile = profiles.get("demo")

    assert "secret" not in f"{profile!r} {profile} {profile.public()}"
    assert profile.callback_address == "https://x.edu/callback"
    assert profile.public()["callback_url"] == "https://x.edu/callback"
    assert str(profile.callback_url) == "https://me:secret@x.edu/callback?token=secret"


def test_an_invalid_callback_is_refused_without_its_secret(profiles: Profiles) -> None:
    put(profiles, callback_url="ftp://me:secret@x.edu")
    message = refusal(profiles)

    assert message.endswith(
        "the value is not valid for callback_url; expected a URL that begins with http:// or https://"
    )
    assert "secret" not in message


def test_only_arks_are_supported(profiles: Profiles) -> None:
    put(profiles, identifier_scheme="doi", minter="noid")
    message = refusal(profiles)

    assert "'doi' is not valid for identifier_scheme; expected ark" in message
    assert "'noid' is not valid for minter; expected local or ezid" in message


def test_a_known_profile_is_read_without_a_list_of_all(
    profiles: Profiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consortium has hundreds of profiles, and a page reads all of them."""
    put(profiles)
    monkeypatch.setattr(profiles, "names", lambda: pytest.fail("the folder was listed"))

    assert profiles.get("demo").name == "demo"


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("object_type", tables.objects.c.object_type),
        ("object_role", tables.objects.c.role),
        ("aggregate_role", tables.objects.c.aggregate_role),
    ],
)
def test_a_kind_that_the_inventory_has_no_room_for_is_refused(
    profiles: Profiles, field: str, column: Column[str]
) -> None:
    assert isinstance(column.type, String)
    limit = column.type.length or 0
    put(profiles, **{field: "x" * limit})
    assert getattr(profiles.get("demo"), field) == "x" * limit

    put(profiles, **{field: "x" * (limit + 1)})
    assert f"{field}; expected at most {limit} characters" in refusal(profiles)
