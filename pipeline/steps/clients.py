"""The clients of outside systems, opened once per process from the settings."""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.attempt import Attempt
from pipeline.identifiers.minter import Minter
from pipeline.identifiers.minter_router import MinterRouter
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.job_record import JobRecord
from pipeline.notify.callback import Callback, HttpCallback
from pipeline.notify.mail import Mailer, open_mailer
from pipeline.profiles.profile import Profile, Profiles
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.host_limits import HostLimiter
from pipeline.steps.context import StepContext
from pipeline.storage.base import Storage
from pipeline.storage.factory import open_storage


@dataclass(frozen=True)
class Clients:
    settings: Settings
    profiles: Profiles
    fetcher: HttpFetcher
    minter: Minter
    storage: Storage
    inventory: SqlInventory
    callback: Callback
    mailer: Mailer

    def step_context(
        self,
        job_record: JobRecord,
        attempt: Attempt,
        limiter: HostLimiter,
        profile_of: Callable[[], Profile],
    ) -> StepContext:
        """The context of the steps of one attempt."""
        return StepContext(
            settings=self.settings,
            profile_of=profile_of,
            job_record=job_record,
            fetcher=self.fetcher.limited_by(limiter),
            minter=self.minter,
            storage=self.storage,
            inventory=self.inventory,
            callback=self.callback,
            mailer=self.mailer,
            attempt=attempt,
        )


def open_clients(settings: Settings) -> Clients:
    return Clients(
        settings=settings,
        profiles=Profiles(settings.profiles),
        fetcher=HttpFetcher(settings),
        minter=MinterRouter(settings),
        storage=open_storage(settings),
        inventory=open_inventory(settings.inventory),
        callback=HttpCallback(settings),
        mailer=open_mailer(settings),
    )
