"""Merritt's storage service as the conformance suite of storages gets it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.deployment import Expected
from pipeline.settings import Settings
from plugins.conformance.subjects import Change, Promise, StoragePlace
from plugins.merritt.settings import MerrittSettings
from plugins.merritt.storage import MerrittStorage
from tests.servers.merritt import merritt
from tests.servers.proxy import Proxy
from tests.support.ocfl_fixture import memory

NODE = 7777

WITHOUT = {
    Promise.EVERY_NAME: "the service decodes %20 and %7c in the names of its manifests",
    Promise.COPIES_READ: "the service compares digests of manifests, and reads no copy that it has",
    Promise.ONE_VERSION: "the service knows no jobs, and makes a version of every request that arrives",
}


@contextmanager
def service(folder: Path) -> Iterator[StoragePlace]:
    with merritt() as running, Proxy(running.port) as proxy, memory(folder) as here:
        settings = Settings(home=here, read_timeout=5)
        url = f"http://{proxy.hosts}/store"
        own = MerrittSettings(storage_service_url=url, storage_service_node=NODE)

        def opened(expected: Expected | None) -> MerrittStorage:
            del expected  # the service keeps no deployment id
            return MerrittStorage(settings, own, pause=0.01)

        def change(ark: str, path: str, change: Change) -> None:
            """The service goes on to list what it had, as one that does not notice the damage."""
            held = running.objects[str(NODE), ark][-1][path]
            data = change(held.data)
            if data is None:
                running.lost.add(path)
            else:
                running.handed[path] = data

        @contextmanager
        def away() -> Iterator[None]:
            proxy.refuse()
            yield
            proxy.accept()

        yield StoragePlace(opened, change, away, settings.working, WITHOUT)
