"""A server that speaks S3, as a child process on a free port, and a storage root in one of its buckets."""

import hashlib
import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from sys import executable
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader

from entrypoints.stack.child import HOST, Command, Process, ask, free_ports
from pipeline.settings import Settings
from pipeline.storage.ocfl import objects
from plugins.s3.bucket import S3Bucket, open_bucket
from plugins.s3.settings import S3Settings
from plugins.s3.storage import S3Storage
from tests.support.ocfl_fixture import ARK, StorageFixture
from tests.support.processes import await_ready

PROGRAM = """
import logging
from moto.server import main
from werkzeug.serving import WSGIRequestHandler

WSGIRequestHandler.protocol_version = "HTTP/1.1"  # connections persist, as with S3
logging.getLogger("werkzeug").setLevel(logging.ERROR)
main()
"""

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "AWS_EC2_METADATA_DISABLED": "true",
}


_load_file = JSONFileLoader.load_file


@cache
def _loaded(path: str) -> Any:
    return _load_file(JSONFileLoader(), path)


# boto3 reads and decodes megabytes of descriptions for each session, and a test opens many buckets
JSONFileLoader.load_file = lambda _, file_path: _loaded(file_path)


class Server:
    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://{HOST}:{self.port}"
        argv = (executable, "-c", PROGRAM, "-H", HOST, "-p", str(self.port))
        self.process = Process(Command("s3", argv, folder / "s3.log", clean=frozenset({0, -15})))

    def start(self) -> None:
        self.process.start()
        question = b"GET /moto-api/ HTTP/1.0\r\n\r\n"
        await_ready(self.process, lambda: ask(self.port, question, b"200 OK", seconds=2))

    def settings(self) -> S3Settings:
        """Settings with a new bucket."""
        name = f"t{uuid.uuid4().hex}"
        self.client.create_bucket(Bucket=name)
        return S3Settings(s3_root=f"s3://{name}/some/root", s3_endpoint=self.url)

    def storage(self, settings: S3Settings) -> S3Storage:
        return S3Storage(lambda: open_bucket(Settings(), settings))

    def bucket(self, home: Path) -> "S3Fixture":
        """A storage root in a new bucket."""
        return S3Fixture(self.settings(), self.client, home)

    @cached_property
    def client(self) -> Any:
        return open_bucket(Settings(), S3Settings(s3_root="s3://none", s3_endpoint=self.url)).client


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        server = Server(folder)
        try:
            server.start()
            yield server
        finally:
            server.process.stop()


CHANGES = ("put", "create", "upload", "complete", "abort", "delete")
"""Prefixes of the names of requests that change something."""


class Watched:
    """boto3's client with a hook before each change: `before` gets the number of the change."""

    def __init__(self, client: Any, before: Callable[[int], None]) -> None:
        self._client, self._before, self._numbers = client, before, itertools.count(1)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**given: Any) -> Any:
            if name.startswith(CHANGES):
                self._before(next(self._numbers))
            return getattr(self._client, name)(**given)

        return call


class S3Fixture(StorageFixture[S3Storage]):
    """A storage root in a bucket. `folder` is a copy of its content, so a test can read it like a disk."""

    def __init__(self, settings: S3Settings, client: Any, home: Path) -> None:
        self.home = home
        self.settings = settings
        self.sources = home / "working"
        self.client = client
        self.bucket, _, self.prefix = settings.s3_root.removeprefix("s3://").partition("/")
        self.storage = self.opened()

    def opened(self, before: Callable[[int], None] | None = None) -> S3Storage:
        """Another process's storage, with a hook before each change."""
        client = Watched(self.client, before) if before else self.client
        return S3Storage(lambda: S3Bucket(client, self.bucket, self.prefix, f"the bucket {self.bucket}"))

    @property
    def folder(self) -> Path:
        listed = self.listed()
        state = hashlib.sha256(repr(sorted(listed.items())).encode()).hexdigest()[:16]
        copy = self.home / "as-it-was" / state
        if listed and not copy.exists():
            for key in listed:
                path = copy / key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.content_of(key))
        return copy

    def head(self, ark: str = ARK) -> objects.Inventory | None:
        return self.storage.object(ark).head()

    def listed(self) -> dict[str, str]:
        """All keys of the root, and their entity tags."""
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix).get("Contents", ())
        return {each["Key"].removeprefix(f"{self.prefix}/"): each["ETag"] for each in found}

    def content_of(self, key: str) -> bytes:
        data: bytes = self.client.get_object(Bucket=self.bucket, Key=f"{self.prefix}/{key}")["Body"].read()
        return data

    def put(self, path: str, data: bytes | None) -> None:
        """Damage a file of the object: other bytes, or none."""
        where = {"Bucket": self.bucket, "Key": f"{self.prefix}/{self.storage.object(ARK).key(path)}"}
        if data is None:
            self.client.delete_object(**where)
        else:
            self.client.put_object(**where, Body=data)
