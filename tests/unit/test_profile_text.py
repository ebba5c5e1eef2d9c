from pathlib import Path

import pytest

from pipeline.profiles.profile import ProfileError, Profiles, Suppression, read_profile
from pipeline.records import ResponseType

TEXT = """\
# a collection of the demonstration
ProfileID: town_content
ProfileDescription: A town: its harbour
Identifier-scheme: ARK
Identifier-namespace: 99999
Collection.2: ark:/99999/fk4second
Collection.1: ark:/99999/fk4first
Type: MRT-curatorial
Role: MRT-content
Aggregate:
Owner: ark:/99999/fk4owner

Notification.1: one@x.edu
Notification.2: two@x.edu
NotificationFormat: XML
StorageService: http://store.x.edu:35121
StorageNode: 7777
Priority: 03
ObjectMinterURL: https://ezid.x.edu/shoulder/ark:/12345/x9
CallbackURL: http://user:secret@callback.x.edu:8098
Context: town
EZID_co-owner: towner
SuppressDublinCoreLocalID: true
HandlerQueue.1: org.x.One
HandlerQueue.2: org.x.Two
"""


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    return Profiles(tmp_path)


def put(profiles: Profiles, text: str = TEXT, name: str = "town_content") -> None:
    (profiles.folder / name).write_text(text)


def refusal(profiles: Profiles) -> str:
    with pytest.raises(ProfileError) as caught:
        profiles.get("town_content")
    return str(caught.value)


@pytest.mark.parametrize("file", ["town_content", "town_content.txt"])
def test_a_profile_in_merritts_form_is_read(file: str, profiles: Profiles) -> None:
    put(profiles, name=file)
    profile = profiles.get("town_content")

    assert profile.name == "town_content"
    assert profile.description == "A town: its harbour"
    assert profile.owner == "ark:/99999/fk4owner"
    assert profile.collections == ("ark:/99999/fk4first", "ark:/99999/fk4second")
    assert (profile.naan, profile.shoulder) == ("12345", "x9")
    assert profile.notification == ("one@x.edu", "two@x.edu")
    assert profile.notification_format is ResponseType.XML
    assert profile.aggregate_role == "MRT-none"
    assert (profile.storage_node, profile.priority) == (7777, 3)
    assert (profile.context, profile.ezid_co_owner) == ("town", "towner")
    assert profile.suppress_dublin_core_local_id
    assert str(profile.callback_url) == "http://user:secret@callback.x.edu:8098/"


def test_unsupported_keys_are_warned_about_once_per_list(profiles: Profiles) -> None:
    put(profiles)

    assert read_profile(profiles.file("town_content"))[1] == (
        "line 16: StorageService is not supported and is ignored",
        "line 24: HandlerQueue is not supported and is ignored",
    )


@pytest.mark.parametrize(
    ("line", "confirmation", "suppression"),
    [
        ("", True, Suppression.NONE),
        ("NotificationSuppression: partial", False, Suppression.PARTIAL),
        ("NotificationSuppression: Full", False, Suppression.FULL),
        ("NotificationType: verbose", False, Suppression.NONE),
        ("NotificationType: additional", True, Suppression.NONE),
    ],
)
def test_the_confirmation_mail_is_sent_unless_it_is_suppressed(
    line: str, confirmation: bool, suppression: Suppression, profiles: Profiles
) -> None:
    put(profiles, f"{TEXT}{line}\n")
    profile = profiles.get("town_content")

    assert (profile.confirmation_mail, profile.notification_suppression) == (confirmation, suppression)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("Identifier-scheme: ARK", "Identifier-scheme: DOI"),
            "line 4: DOI is not supported; the only identifier scheme is ARK",
        ),
        (("/shoulder/ark:/12345/x9", ""), "line 19: ObjectMinterURL must end with"),
        (("Type: MRT-curatorial", "Type MRT-curatorial"), "line 8: expected 'Key: value'"),
        (("Collection.2", "Collection.1"), "line 7: Collection.1 was already given on line 6"),
        (("Owner: ark:/99999/fk4owner", ""), "owner is missing"),
        (("Priority: 03", "Priority: urgent"), "'urgent' is not valid for priority"),
        (
            ("ProfileID: town_content", "ProfileID: other"),
            "the name is other, but the file is named town_content",
        ),
    ],
)
def test_a_malformed_text_is_refused_with_file_and_line(
    change: tuple[str, str], said: str, profiles: Profiles
) -> None:
    put(profiles, TEXT.replace(*change))
    message = refusal(profiles)

    assert message.startswith("profile town_content: ")
    assert said in message
    assert "secret" not in message
