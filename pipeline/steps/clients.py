"""All clients of the outside systems, opened once in each process from the settings."""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.identifiers.minter import Minter
from pipeline.identifiers.minter_router import ChosenMinter
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.job_record import Ledger
from pipeline.notify.callback import Callback, HttpCallback
from pipeline.notify.mail import Mailer, mailer_of
from pipeline.profiles.profile import Profile, Profiles
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.host_limits import Courtesy
from pipeline.steps.context import Services
from pipeline.storage.base import Storage
from pipeline.storage.factory import open_storage


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
