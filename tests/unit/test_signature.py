import base64
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree.ElementTree import fromstring

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from pipeline.notify.callback import NAMESPACE, HttpCallback, callback_facts, render
from pipeline.outcome import ServiceDown, StepFailed
from pipeline.profiles.profile import Profile, Profiles
from pipeline.records import ResponseType
from pipeline.settings import Settings
from pipeline.states import FailureKind, JobState
from tests.servers.receiver import Receiver
from tests.support.records import a_job

DEPOSITORS = Path(__file__).parents[2] / "docs" / "depositors.md"
SECRET = "a secret of many letters"
OTHER = "another, of the setting's"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(allow_networks="127.0.0.0/8", profiles=tmp_path, callback_secret="")


def tell(settings: Settings, receiver: Receiver, **facts: object) -> None:
    profile = Profile(
        name="demo",
        owner="ark:/99999/j2000000",
        collections=("ark:/99999/m5000000",),
        callback_url=receiver.url(),
    )
    HttpCallback(settings, pause=0.01).deliver(a_job(1, JobState.NOTIFY, **facts), profile, 1)


def signed(body: bytes, secret: str) -> str:
    """As a receiver computes it."""
    return "sha256=" + hmac.digest(secret.encode(), body, hashlib.sha256).hex()


def test_without_a_secret_nothing_is_signed(settings: Settings, receiver: Receiver) -> None:
    tell(settings, receiver)

    headers = receiver.received[0].headers
    assert {"webhook-id", "webhook-timestamp"} <= headers.keys()
    assert not {"webhook-signature", "Arkline-Signature"} & headers.keys()


@pytest.mark.parametrize("form", ResponseType)
def test_the_body_is_signed_with_the_collections_secret(
    settings: Settings, receiver: Receiver, form: ResponseType
) -> None:
    (settings.profiles / "demo.secret").write_text(f"{SECRET}\n")

    tell(settings.model_copy(update={"callback_secret": OTHER}), receiver, response_type=form)

    (request,) = receiver.received
    assert request.headers["Arkline-Signature"] == signed(request.raw, SECRET)


def test_a_collection_without_a_secret_has_that_of_the_setting(receiver: Receiver, tmp_path: Path) -> None:
    tell(
        Settings(allow_networks="127.0.0.0/8", profiles=tmp_path, callback_secret=OTHER),
        receiver,
    )

    (request,) = receiver.received
    assert request.headers["Arkline-Signature"] == signed(request.raw, OTHER)


def example() -> Callable[..., None]:
    """The receiver's check in docs/depositors.md."""
    (code,) = re.findall(r"^```python\n(.*?)^```", DEPOSITORS.read_text(), re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    return cast(Callable[..., None], found["verify"])


@pytest.mark.parametrize("secret", [SECRET, "whsec_" + base64.b64encode(SECRET.encode()).decode()])
def test_the_check_in_the_documentation_accepts_a_callback(
    settings: Settings, receiver: Receiver, secret: str
) -> None:
    (settings.profiles / "demo.secret").write_text(secret)

    tell(settings, receiver)

    (request,) = receiver.received
    example()(request.headers, request.raw, SECRET.encode())


def test_while_a_secret_is_replaced_receivers_with_the_new_or_the_old_one_accept_a_callback(
    settings: Settings, receiver: Receiver
) -> None:
    (settings.profiles / "demo.secret").write_text(f"{OTHER}\n{SECRET}\n")

    tell(settings, receiver)

    (request,) = receiver.received
    for secret in (OTHER, SECRET):
        example()(request.headers, request.raw, secret.encode())
    with pytest.raises(ValueError, match="signature is wrong"):
        example()(request.headers, request.raw, b"a third secret of many letters")


@pytest.mark.parametrize("form", ResponseType)
def test_a_receiver_with_the_library_of_standard_webhooks_accepts_a_callback_while_the_secret_is_replaced(
    settings: Settings, receiver: Receiver, form: ResponseType
) -> None:
    new, old = ("whsec_" + base64.b64encode(text.encode()).decode() for text in (OTHER, SECRET))
    (settings.profiles / "demo.secret").write_text(f"{new}\n{old}\n")

    tell(settings, receiver, response_type=form, erc_what="Größe 🗻")

    (request,) = receiver.received
    for secret in (new, old):
        Webhook(secret).verify(request.raw, dict(request.headers), json_parse=False)
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        Webhook(b"a third secret of many letters").verify(request.raw, dict(request.headers))


def test_random_bytes_are_one_secret_although_one_of_them_is_a_line_feed(
    settings: Settings, receiver: Receiver
) -> None:
    secret = b"\xf1\x02 first half\nsecond half \x03\xf4"
    (settings.profiles / "demo.secret").write_bytes(secret)

    tell(settings, receiver)

    (request,) = receiver.received
    example()(request.headers, request.raw, secret)


@pytest.mark.parametrize(
    ("change", "seconds"),
    [
        ({"webhook-id": "jid0000000001-7"}, 0),
        ({"webhook-timestamp": "1790000000"}, 0),
        ({"webhook-signature": "v1,AAAA"}, 0),
        ({}, 301),
        ({}, -301),
    ],
)
def test_the_check_in_the_documentation_refuses_a_callback_that_was_changed_or_repeated_later(
    settings: Settings, receiver: Receiver, change: dict[str, str], seconds: int
) -> None:
    (settings.profiles / "demo.secret").write_text(SECRET)
    tell(settings, receiver)
    (request,) = receiver.received
    later = int(request.headers["webhook-timestamp"]) + seconds

    verify = example()
    verify(request.headers, request.raw, SECRET.encode(), now=later - seconds)
    with pytest.raises(ValueError, match="callback"):
        verify({**request.headers, **change}, request.raw, SECRET.encode(), now=later)
    with pytest.raises(ValueError, match="callback"):
        verify(request.headers, request.raw + b" ", SECRET.encode(), now=later - seconds)


def test_a_repetition_is_signed_at_its_own_time(
    settings: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.profiles / "demo.secret").write_text(SECRET)
    receiver.answers += [(503, {})]
    times = iter((1_790_000_000.0, 1_790_000_060.0))
    clock = SimpleNamespace(time=lambda: next(times), monotonic=time.monotonic)
    monkeypatch.setattr("pipeline.notify.callback.time", clock)

    tell(settings, receiver)

    headers = [request.headers for request in receiver.received]
    assert [each["webhook-timestamp"] for each in headers] == ["1790000000", "1790000060"]
    assert len({each["webhook-id"] for each in headers}) == 1
    for request in receiver.received:
        sent = int(request.headers["webhook-timestamp"])
        example()(request.headers, request.raw, SECRET.encode(), now=sent)


def test_a_secret_that_claims_to_be_base64_and_is_not_is_refused(
    settings: Settings, receiver: Receiver
) -> None:
    (settings.profiles / "demo.secret").write_text("whsec_not base64 at all")

    with pytest.raises(StepFailed, match="is not base64: write it again") as failure:
        tell(settings, receiver)
    assert failure.value.kind is FailureKind.SYSTEM
    assert receiver.received == []


def test_a_repetition_has_the_same_old_signature(settings: Settings, receiver: Receiver) -> None:
    (settings.profiles / "demo.secret").write_text(SECRET)
    receiver.answers += [(503, {})]

    tell(settings, receiver)

    assert len({request.headers["Arkline-Signature"] for request in receiver.received}) == 1


@pytest.mark.parametrize("secret", ["", "too short", "whsec_dG9vIHNob3J0"])
def test_a_secret_that_can_be_guessed_is_refused_without_being_shown(
    settings: Settings, receiver: Receiver, secret: str
) -> None:
    (settings.profiles / "demo.secret").write_text(secret)

    with pytest.raises(StepFailed, match=r"demo\.secret is shorter than 16 bytes") as failure:
        tell(settings, receiver)
    assert failure.value.kind is FailureKind.SYSTEM
    assert "too short" not in failure.value.message
    assert receiver.received == []


def test_the_secret_is_in_no_message_profile_or_log(
    settings: Settings, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (settings.profiles / "demo.yaml").write_text(
        f"owner: ark:/99999/a\ncollections: ark:/99999/b\ncallback_url: {receiver.url()}\n"
    )
    (settings.profiles / "demo.secret").write_text(SECRET)
    receiver.answers += [(503, {})] * 3

    with pytest.raises(ServiceDown) as failure:
        tell(settings, receiver)
    shown = f"{failure.value} {caplog.text} {Profiles(settings.profiles).get('demo').public()} {settings!r}"
    assert SECRET not in shown
    assert Profiles(settings.profiles).names() == ("demo",)


def test_xml_and_turtle_say_what_json_says() -> None:
    texts = {"erc_who": 'A "B" \\ C', "erc_what": "Größe & <Gewicht> 🗻", "note": "line\r\nline\ttab"}
    facts = callback_facts(a_job(1, JobState.FAILED, message="a\u0301.jpg: 404", **texts), 3)

    said = json.loads(render(facts, ResponseType.JSON).body)["job:jobState"]
    del said["xmlns:job"]
    xml = fromstring(render(facts, ResponseType.XML).body)
    turtle = re.findall(
        r'^    (job:\w+) ("(?:[^"\\]|\\.)*"|\d+) [;.]$',
        render(facts, ResponseType.TURTLE).body.decode(),
        re.MULTILINE,
    )

    assert {"jobStatusMessage", "note", "versionID"} <= facts.keys()
    assert {f"job:{each.tag.removeprefix(f'{{{NAMESPACE}}}')}": each.text for each in xml} == {
        name: str(value) for name, value in said.items()
    }
    assert {name: json.loads(value) for name, value in turtle} == said
