"""Merritt's inventory service, beside its storage service, as the suite of inventories gets it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.settings import Settings
from plugins.conformance.storing import Place
from plugins.conformance.subjects import InventoryPlace, OwnInventory, Registry
from plugins.merritt.inventory import MerrittInventory
from plugins.merritt.settings import MerrittSettings
from tests.plugins.merritt import conforming
from tests.servers.merritt_inventory import inventory_service
from tests.servers.proxy import Proxy


@contextmanager
def service(folder: Path) -> Iterator[InventoryPlace]:
    with (
        conforming.service(folder) as storage,
        inventory_service() as running,
        Proxy(running.port) as proxy,
    ):
        objects = Place(storage)
        url = f"http://{proxy.hosts}/mrtinv"
        settings, own = (
            Settings(home=folder, read_timeout=5),
            MerrittSettings.model_construct(inventory_service_url=url),
        )

        def store(ark: str, number: int) -> str:
            """The service reads all versions of the object from the storage service."""
            versions = objects.storage.versions_of(ark) if objects.storage.has_object(ark) else ()
            if len(versions) < number:
                objects.store(number, {"producer/a.txt": f"{ark} {number}"}, ark=ark)
            stored = objects.version_of(number, ark)
            assert stored is not None
            return stored.url

        @contextmanager
        def away() -> Iterator[None]:
            proxy.refuse()
            yield
            proxy.accept()

        @contextmanager
        def refuses() -> Iterator[None]:
            running.faults = [400] * 100
            yield
            running.faults = []

        service = OwnInventory(
            lambda: MerrittInventory(settings, own, pause=0.01),
            Registry(running.versions.get, away, refuses),
            store,
        )
        yield InventoryPlace(f"sqlite:///{folder}/inventory.sqlite", service)
