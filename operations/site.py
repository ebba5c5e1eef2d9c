"""One deployment as opened by a process: an operation is a function of a site, a principal, and more.

SQLAlchemy, Celery and requests take most of a second to load, so their modules are imported as modules, which
the command line loads on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.decoding import decoder
from pipeline.inventory import sql
from pipeline.outcome import Service
from pipeline.profiles import profile
from pipeline.storage import factory
from pipeline.uploads import quota
from tasks import after_move, broker, stores
from zkstate.connection import session

if TYPE_CHECKING:
    from pipeline.records import Batch, Job
    from pipeline.settings import Settings
    from pipeline.storage.base import Storage
    from zkstate.connection.session import Session


PICTURE_SECONDS = 20
"""Seconds of processor time for a picture."""


@dataclass(frozen=True)
class Site:
    """The settings, the record, and the stores, which are opened on first use. Thread-safe."""

    settings: Settings
    session: Session
    record: bool = True
    """False for requests answered without ZooKeeper: the stores are opened without asking the record."""

    @cached_property
    def profiles(self) -> profile.Profiles:
        return profile.Profiles(self.settings.profiles)

    def profile(self, name: str) -> profile.Profile:
        """The collection's profile as it is in its file now, within the limits of the site."""
        return profile.with_site_limits(self.profiles.get(name), self.settings)

    @cached_property
    def quotas(self) -> quota.Quotas:
        """The upload quotas in use, as this process knows them."""
        return quota.Quotas(self.settings)

    @cached_property
    def picture_decoder(self) -> decoder.Decoder:
        """Makes pictures of stored images in a process of its own, one at a time."""
        return decoder.Decoder(self.settings, PICTURE_SECONDS)

    @cached_property
    def decoder(self) -> decoder.Decoder:
        """Reads spreadsheets in a process of its own, which starts with the first one."""
        return decoder.Decoder(self.settings)

    def inventory(self) -> sql.SqlInventory:
        """The inventory, over the process's connections; ServiceDown if it belongs to another deployment."""
        # asked each time: a record restored from a backup may have another id
        expected = stores.expected_of(self.session) if self.record else None
        return sql.open_inventory(self.settings.inventory, expected and partial(expected, Service.INVENTORY))

    def archive(self) -> sql.SqlInventory | None:
        """The inventory, which has what left ZooKeeper; None if its file does not exist yet."""
        return self.inventory() if inventory_exists(self.settings) else None

    def storage(self) -> Storage:
        """The inventory's storage; ServiceDown if it belongs to another deployment."""
        return storage_of(self.settings, self.inventory())

    def feed(self) -> None:
        """Dispatch pending jobs until the limit of active jobs is reached."""
        after_move.feed(broker.publisher(self.settings), self.session, self.settings)

    def follow(self, moved: Job | Batch) -> bool:
        """Do what follows a move, except feeding; returns False if Redis did not take a message."""
        return after_move.follow(broker.publisher(self.settings), self.session, self.settings, moved)


@contextmanager
def opened(settings: Settings, timeout: float) -> Iterator[Site]:
    """The site of these settings, for the block; ZooKeeper must answer within `timeout` seconds."""
    with session.connect(settings, timeout) as connected:
        yield Site(settings, connected)


def inventory_file(settings: Settings) -> Path:
    """The file of the inventory if no URL is set."""
    return settings.data / "inventory.sqlite"


def inventory_exists(settings: Settings) -> bool:
    """Whether the inventory can be opened without creating its file."""
    return bool(settings.inventory_url) or inventory_file(settings).exists()


def storage_of(settings: Settings, inventory: sql.SqlInventory) -> Storage:
    """The storage of this inventory; ServiceDown for a root of another deployment."""
    marker = inventory.read_deployment()
    return factory.open_storage(settings, (lambda: marker.id) if marker else None)
