"""A bucket whose server is away, loses answers or refuses; what of it is tried again, and who has to act."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests

from pipeline.attempt import CheckedAttempt
from pipeline.errors import UsageRefused
from pipeline.fixity import ContentFile
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.settings import Settings, read_settings
from pipeline.states import FailureKind
from pipeline.storage.factory import open_storage
from plugins.s3.bucket import PART_BYTES, S3Bucket, open_bucket
from plugins.s3.settings import S3Settings
from plugins.s3.storage import S3Storage
from tests.servers.proxy import Proxy
from tests.servers.s3 import S3Fixture, Server
from tests.support.ocfl_fixture import ARK, assert_valid, memory

FILES = {"producer/a.txt": "a"}


@pytest.fixture
def depot(s3_server: Server, tmp_path: Path) -> Iterator[S3Fixture]:
    with memory(tmp_path) as folder:
        yield S3Fixture(s3_server.settings(), s3_server.client, folder)


def behind(depot: S3Fixture, url: str, tries: int = 1, root: str = "", **given: Any) -> S3Storage:
    """The depot's storage as somebody has it who reaches it at this URL."""
    own = S3Settings(s3_root=root or depot.settings.s3_root, s3_endpoint=url)
    return S3Storage(lambda: open_bucket(Settings(**given), own, tries))


def refused(storage: S3Storage, depot: S3Fixture, kind: FailureKind, says: str) -> None:
    with pytest.raises(StepFailed, match=says) as failed:
        storage.store(depot.request("jid1", FILES), lambda: None)
    assert failed.value.kind is kind
    assert depot.bucket in failed.value.message


def test_a_version_whose_answer_was_lost_is_not_made_twice(depot: S3Fixture, s3_server: Server) -> None:
    with Proxy(s3_server.port) as proxy, ThreadPoolExecutor(1) as thread:
        storage = behind(depot, f"http://{proxy.hosts}", tries=3)
        storage.root.open()
        proxy.swallow_after(b'"digestAlgorithm"')  # the root inventory is the first to be sent
        storing = thread.submit(storage.store, depot.request("jid1", FILES), lambda: None)
        assert proxy.swallowed.wait(30)
        assert depot.jobs() == ["jid1"]
        proxy.cut()
        stored = storing.result(30)

    assert depot.jobs() == ["jid1"]
    assert depot.storage.version_of(ARK, "jid1") == stored
    assert_valid(depot)


def test_a_server_that_is_away_is_waited_for(depot: S3Fixture, s3_server: Server) -> None:
    with Proxy(s3_server.port) as proxy:
        storage = behind(depot, f"http://{proxy.hosts}")
        proxy.refuse()
        refused(storage, depot, FailureKind.TRANSIENT, f"at http://{proxy.hosts} cannot be reached")
        proxy.accept()
        storage.verify(storage.store(depot.request("jid1", FILES), lambda: None))

    assert_valid(depot)


def test_a_server_that_does_not_answer_keeps_nobody_for_long(depot: S3Fixture, s3_server: Server) -> None:
    storage = behind(depot, s3_server.url, read_timeout=0.2)
    s3_server.process.send_signal(signal.SIGSTOP)
    try:
        refused(storage, depot, FailureKind.TRANSIENT, "ReadTimeoutError")
    finally:
        s3_server.process.send_signal(signal.SIGCONT)


def test_a_missing_bucket_is_an_outage(depot: S3Fixture, s3_server: Server) -> None:
    depot.bucket = "nowhere"
    storage = behind(depot, s3_server.url, root="s3://nowhere")

    refused(storage, depot, FailureKind.TRANSIENT, r"NoSuchBucket\): create it, or correct ARKLINE_S3_ROOT")


def test_missing_unknown_and_insufficient_credentials_are_distinguished(
    depot: S3Fixture, s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = boto3.client("iam", endpoint_url=s3_server.url)
    people.create_user(UserName="weak")
    weak = people.create_access_key(UserName="weak")["AccessKey"]
    requests.post(f"{s3_server.url}/moto-api/reset-auth", data="0", timeout=10)
    try:
        refused(
            behind(depot, s3_server.url),
            depot,
            FailureKind.TRANSIENT,
            r"InvalidAccessKeyId\): give the workers a "
            "key",
        )
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", weak["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", weak["SecretAccessKey"])
        refused(
            behind(depot, s3_server.url),
            depot,
            FailureKind.TRANSIENT,
            r"AccessDenied\): allow this key",
        )
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        refused(behind(depot, s3_server.url), depot, FailureKind.TRANSIENT, "needs credentials")
    finally:
        requests.post(f"{s3_server.url}/moto-api/reset-auth", data="inf", timeout=10)


class Careless:
    """A server that takes no notice of some of what it is asked, and that may change what it gets."""

    def __init__(
        self, client: Any, ignored: str, damage: Callable[[bytes], bytes] = lambda data: data
    ) -> None:
        self._client, self._ignored, self._damage = client, ignored, damage

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**given: Any) -> Any:
            if "Body" in given:
                given["Body"] = self._damage(given["Body"])
            taken = {key: value for key, value in given.items() if not key.startswith(self._ignored)}
            return getattr(self._client, name)(**taken)

        return call

    def storage(self, depot: S3Fixture) -> S3Storage:
        return S3Storage(lambda: S3Bucket(self, depot.bucket, depot.prefix, depot.bucket))


@pytest.mark.parametrize("ignored", ["IfNoneMatch", "IfMatch"])
def test_a_server_without_conditional_writes_is_not_used(depot: S3Fixture, ignored: str) -> None:
    storage = Careless(depot.client, ignored).storage(depot)

    refused(storage, depot, FailureKind.SYSTEM, "ignores conditional writes")


def test_unconfirmed_content_is_read_back_before_it_is_published(depot: S3Fixture) -> None:
    request = depot.request("jid1", {"producer/a.bin": "x" * (PART_BYTES + 1)})
    damaging = Careless(depot.client, "Checksum", lambda data: data.replace(b"xxx", b"xyx"))

    with pytest.raises(StepFailed, match=r"did not store .*producer/a\.bin as it was sent") as failed:
        damaging.storage(depot).store(request, lambda: None)
    assert failed.value.kind is FailureKind.TRANSIENT
    assert depot.storage.version_of(ARK, "jid1") is None

    Careless(depot.client, "Checksum").storage(depot).store(request, lambda: None)
    assert_valid(depot)


def test_a_server_of_something_else_is_not_taken_for_a_bucket(depot: S3Fixture, s3_server: Server) -> None:
    refused(behind(depot, f"{s3_server.url}/moto-api"), depot, FailureKind.SYSTEM, "check ARKLINE_S3_ROOT")


def test_a_bucket_with_other_content_does_not_become_a_storage_root(depot: S3Fixture) -> None:
    depot.client.put_object(Bucket=depot.bucket, Key=f"{depot.prefix}/thesis.doc")

    with pytest.raises(
        StepFailed,
        match=r"s3://.* nor empty \(it contains 'thesis\.doc'\): set "
        "ARKLINE_S3_ROOT",
    ):
        depot.store("jid1", FILES)


def test_an_upload_in_parts_ends_with_its_attempt_and_leaves_nothing(depot: S3Fixture) -> None:
    source = depot.home / "large.bin"
    source.write_bytes(bytes(2 * PART_BYTES))
    large = ContentFile("producer/large.bin", source, 2 * PART_BYTES, "")
    checks = iter(range(2))

    def check() -> None:
        if next(checks):
            raise AttemptOver("the lock is lost")

    with pytest.raises(AttemptOver):
        depot.storage.root.bucket.upload("large.bin", large, CheckedAttempt(check))

    assert "Uploads" not in depot.client.list_multipart_uploads(Bucket=depot.bucket)
    assert depot.listed() == {}


def test_what_a_dead_upload_in_parts_left_goes_when_the_file_is_sent_again(depot: S3Fixture) -> None:
    dead = threading.Event()

    def die(number: int) -> None:
        if dead.is_set() or number == 3:
            dead.set()
            raise KeyboardInterrupt

    depot.storage.root.open()
    storage = depot.opened(die)
    storage.root.is_open = True
    request = depot.request("jid1", {"producer/large.bin": "x" * (PART_BYTES + 1)})
    with pytest.raises(KeyboardInterrupt):
        storage.store(request, lambda: None)
    assert len(depot.client.list_multipart_uploads(Bucket=depot.bucket)["Uploads"]) == 1

    depot.storage.verify(depot.storage.store(request, lambda: None))

    assert "Uploads" not in depot.client.list_multipart_uploads(Bucket=depot.bucket)
    (etag,) = [each for key, each in depot.listed().items() if key.endswith("large.bin")]
    assert etag.endswith('-2"')
    assert_valid(depot)


def test_a_worker_without_boto3_says_what_to_install() -> None:
    program = """if True:
        import sys
        from pipeline.storage.factory import open_storage
        from pipeline.settings import Settings
        assert "boto3" not in sys.modules
        sys.modules["boto3"] = None
        storage = open_storage(Settings())
        try:
            storage.version_of("ark:/99999/x", "jid1")
        except Exception as error:
            print(error)
    """
    environment = {**os.environ, "ARKLINE_S3_ROOT": "s3://bucket"}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout

    assert "pip install 'arkline[s3]'" in said


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("ARKLINE_S3_ROOT", "bucket/prefix", "ARKLINE_S3_ROOT: .* is not s3://BUCKET or s3://BUCKET/PREFIX"),
        ("ARKLINE_S3_ROOT", "s3://", "is not s3://BUCKET"),
        ("ARKLINE_STORAGE_ROOT", "s3://bucket/prefix", "use ARKLINE_S3_ROOT"),
    ],
)
def test_a_root_that_is_no_bucket_is_refused_at_once(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(UsageRefused, match=says):
        open_storage(read_settings(Settings))
