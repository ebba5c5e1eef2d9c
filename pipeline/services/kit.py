"""All clients of the outside systems, opened once in each process from the settings."""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.profile import Profile, Profiles
from pipeline.services import Ledger, Services
from pipeline.services.callback import Callback, HttpCallback
from pipeline.services.chosen_minter import ChosenMinter
from pipeline.services.courtesy import Courtesy
from pipeline.services.fetch import HttpFetcher
from pipeline.services.mail import Mailer, mailer_of
from pipeline.services.minter import Minter
from pipeline.services.opened_storage import open_storage
from pipeline.services.storage import Storage
from pipeline.settings import Settings


@dataclass(frozen=True)
class Kit:
    settings: Settings
    profiles: Profiles
    fetcher: HttpFetcher
    minter: Minter
    storage: Storage
    inventory: SqlInventory
    callback: Callback
    mailer: Mailer

    def services(
        self, ledger: Ledger, alive: Callable[[], None], courtesy: Courtesy, profile_of: Callable[[], Profile]
    ) -> Services:
        """What the steps of one attempt may use."""
        return Services(
            settings=self.settings,
            profile_of=profile_of,
            ledger=ledger,
            fetcher=self.fetcher.courteous(courtesy),
            minter=self.minter,
            storage=self.storage,
            inventory=self.inventory,
            callback=self.callback,
            mailer=self.mailer,
            alive=alive,
        )


def open_kit(settings: Settings) -> Kit:
    return Kit(
        settings=settings,
        profiles=Profiles(settings.profiles),
        fetcher=HttpFetcher(settings),
        minter=ChosenMinter(settings),
        storage=open_storage(settings),
        inventory=open_inventory(settings.inventory),
        callback=HttpCallback(settings),
        mailer=mailer_of(settings),
    )
