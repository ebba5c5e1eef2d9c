"""The context of a step: the clients of external systems, opened once per process, and its attempt."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from pipeline import causes, plugins
from pipeline.attempt import Attempt, JobRecord
from pipeline.checking.process import Checker
from pipeline.checking.running import Checking, HoldPlace, unlimited
from pipeline.decoding.decoder import Decoder
from pipeline.deployment import Expected, ExpectedOf
from pipeline.identifiers.ezid import EzidMinter
from pipeline.identifiers.minter import Minter
from pipeline.inventory.database import Database
from pipeline.inventory.service import InventoryService, InventoryWithService
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.notify.callback import HttpCallback
from pipeline.notify.mail import Mailer, open_mailer
from pipeline.outcome import Service, system
from pipeline.profiles.profile import Profile, ProfileError, Profiles
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.limits import HostLimiter
from pipeline.storage.base import Storage
from pipeline.storage.factory import open_storage
from pipeline.working_storage.workspace import Workspace

MinterOf: TypeAlias = Callable[[Profile], Minter]
"""The minter for the objects of a profile's collection."""


@dataclass(frozen=True)
class Clients:
    """The clients of external systems, opened once per process by `open_clients`."""

    settings: Settings
    profiles: Profiles
    fetcher: HttpFetcher
    minter_of: MinterOf
    storage: Storage
    inventory: SqlInventory
    callback: HttpCallback
    mailer: Mailer
    decoder: Decoder
    checker: Checker

    def step_context(
        self,
        job_record: JobRecord,
        attempt: Attempt,
        limiter: HostLimiter,
        profile_of: Callable[[], Profile],
        check_place: HoldPlace = unlimited,
    ) -> "StepContext":
        """The context for one attempt's steps, with a fetcher that observes the fleet's limits per host."""
        fetcher = self.fetcher.limited_by(limiter, lambda: own.profile.allowed_sources)
        clients = {**vars(self), "fetcher": fetcher}
        own = StepContext(
            **clients, job_record=job_record, attempt=attempt, profile_of=profile_of, check_place=check_place
        )
        return own


@dataclass(frozen=True)
class StepContext(Clients):
    """The clients, and the attempt at a step that uses them."""

    job_record: JobRecord
    attempt: Attempt
    """Checked before every external effect."""
    profile_of: Callable[[], Profile]
    """Reads the profile in the batch's snapshot; called when the profile is first needed."""
    check_place: HoldPlace = unlimited

    @property
    def profile(self) -> Profile:
        """The profile that the job's batch started with; StepFailed(system) if it is missing or invalid."""
        try:
            return self.profile_of()
        except ProfileError as error:
            raise system(str(error)).because(causes.CONFIGURATION_INVALID()) from error

    def checking(self, job: Job) -> Checking:
        """The checks that the profile asks for."""
        workspace = Workspace.of(job, self.settings.working)
        checks = self.profile.checks
        return Checking(checks, self.checker, workspace, self.attempt, job.history, self.check_place)


MinterOpener: TypeAlias = Callable[[Settings], Minter]
"""The type of the plugins in the group `arkline.minter`."""

InventoryOpener: TypeAlias = Callable[[Settings], InventoryService]
"""The type of the plugins in the group `arkline.inventory`."""


def open_minters(settings: Settings) -> MinterOf:
    """A plugin's minter for the profiles that name none, and ours for those that do."""
    ours = EzidMinter(settings)
    opener: MinterOpener | None = plugins.chosen(plugins.MINTER)
    if opener is None:
        return lambda _profile: ours
    sites = opener(settings)
    return lambda profile: sites if profile.minter is None else ours


def _open_inventory(settings: Settings, expected: Expected | None) -> SqlInventory:
    opener: InventoryOpener | None = plugins.chosen(plugins.INVENTORY)
    if opener is None:
        return open_inventory(settings.inventory, expected)
    return InventoryWithService(Database(settings.inventory, expected=expected), opener(settings))


def open_clients(settings: Settings, expected: ExpectedOf | None = None) -> Clients:
    """Open the clients of this process.

    `expected`: the deployment that storage and inventory must belong to; ServiceDown otherwise. Without
    `expected` nothing is checked, and missing stores are created.
    """
    return Clients(
        settings=settings,
        profiles=Profiles(settings.profiles),
        fetcher=HttpFetcher(settings),
        minter_of=open_minters(settings),
        storage=open_storage(settings, expected and partial(expected, Service.STORAGE)),
        inventory=_open_inventory(settings, expected and partial(expected, Service.INVENTORY)),
        callback=HttpCallback(settings),
        mailer=open_mailer(settings),
        decoder=Decoder(settings),
        checker=Checker((settings.working,)),
    )
