"""A bucket as the conformance suite of storages gets it; its server lives as long as the process."""

import atexit
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from pipeline.deployment import Expected
from pipeline.settings import Settings
from plugins.conformance.subjects import Change, StoragePlace
from plugins.s3.bucket import open_bucket
from plugins.s3.storage import S3Storage
from tests.servers.proxy import Proxy
from tests.servers.s3 import Server, running
from tests.support.ocfl_fixture import memory


@cache
def server() -> Server:
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running(Path(mkdtemp())))


@contextmanager
def bucket(folder: Path) -> Iterator[StoragePlace]:
    with Proxy(server().port) as proxy, memory(folder) as here:
        own = server().settings().model_copy(update={"s3_endpoint": f"http://{proxy.hosts}"})

        def opened(expected: Expected | None) -> S3Storage:
            return S3Storage(lambda: open_bucket(Settings(), own, tries=1), expected)

        def change(ark: str, path: str, change: Change) -> None:
            stored = opened(None).object(ark)
            head = stored.head()
            assert head is not None
            digest = head.versions[head.head].digests()[path]
            name, _, prefix = own.s3_root.removeprefix("s3://").partition("/")
            where = {"Bucket": name, "Key": f"{prefix}/{stored.key(head.manifest[digest][0])}"}
            client = server().client
            data = change(client.get_object(**where)["Body"].read())
            if data is None:
                client.delete_object(**where)
            else:
                client.put_object(**where, Body=data)

        @contextmanager
        def away() -> Iterator[None]:
            proxy.refuse()
            yield
            proxy.accept()

        yield StoragePlace(opened, change, away, here / "working")
