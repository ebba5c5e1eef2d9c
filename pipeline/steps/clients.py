"""Opens the clients of outside systems from the settings, once per process."""

from functools import partial

from pipeline.decoding.decoder import Decoder
from pipeline.deployment import Expected, ExpectedOf
from pipeline.identifiers.ezid import MinterRouter
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.merritt_inventory import MerrittInventory
from pipeline.notify.callback import HttpCallback
from pipeline.notify.mail import open_mailer
from pipeline.outcome import Service
from pipeline.profiles.profile import Profiles
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.steps.context import Clients
from pipeline.storage.factory import open_storage


def _open_inventory(settings: Settings, expected: Expected | None) -> SqlInventory:
    if settings.inventory_service_url:
        return MerrittInventory(settings, expected)
    return open_inventory(settings.inventory, expected)


def open_clients(settings: Settings, expected: ExpectedOf | None = None) -> Clients:
    """`expected`: the deployment that storage and inventory must belong to, or ServiceDown, which stops their
    use. Without it nothing is checked, and stores that are missing are created.
    """
    return Clients(
        settings=settings,
        profiles=Profiles(settings.profiles),
        fetcher=HttpFetcher(settings),
        minter=MinterRouter(settings),
        storage=open_storage(settings, expected and partial(expected, Service.STORAGE)),
        inventory=_open_inventory(settings, expected and partial(expected, Service.INVENTORY)),
        callback=HttpCallback(settings),
        mailer=open_mailer(settings),
        decoder=Decoder(settings),
    )
