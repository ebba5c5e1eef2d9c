"""What a site hands over to have a backend tested: the backend, and what only the site can do to it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pipeline.checks import Check, CheckRule, CheckVerdict, configured, installed
from pipeline.deployment import Expected
from pipeline.identifiers.minter import Minter
from pipeline.inventory.service import InventoryService
from pipeline.principal import Principal
from pipeline.profiles.profile import Profile
from pipeline.storage.base import Storage

if TYPE_CHECKING:  # loads the web application, which the other suites do not need
    import requests

    from entrypoints.web.context import Login

Change: TypeAlias = Callable[[bytes], bytes | None]
"""The new bytes of a stored file; None: the file is gone."""


class Promise(StrEnum):
    """What a storage need not promise: pipeline/storage/base.py says what arkline does without it."""

    EVERY_NAME = "every-name"
    """Every file name that arkline accepts is stored; without it, `check` refuses some as content."""
    COPIES_READ = "copies-read"
    """A version relies on no damaged copy of an earlier one: `store` reads the copies that it keeps."""
    ONE_VERSION = "one-version"
    """Several attempts at a job at the same time make one version, although no fence stops one of them."""


@dataclass(frozen=True)
class StoragePlace:
    """An empty place for objects, and the means to harm it."""

    open: Callable[[Expected | None], Storage]
    """The storage as another process would open it, with the arguments of `Opener`."""
    change: Callable[[str, str, Change], None]
    """Change the stored bytes of a file: (ARK, path in the latest version, change). Storage must not know."""
    away: Callable[[], AbstractContextManager[None]]
    """While the block lasts, the place cannot be reached: it is unmounted, or its server is stopped."""
    working: Path
    """Working storage: the folder for files to be stored."""
    without: Mapping[Promise, str] = field(default_factory=dict)
    """Promises that this storage does not give -> the reason, which the report of the tests shows."""


StorageSubject: TypeAlias = Callable[[Path], AbstractContextManager[StoragePlace]]
"""`--arkline-storage=MODULE:FUNCTION`: gets a folder, and makes an empty place for every test."""


@dataclass(frozen=True)
class Registry:
    """The service that knows a minter's ARKs or an inventory's versions, and the means to disturb it."""

    known: Callable[[str], object]
    """What the service has about an ARK, to be compared; None if it does not know the ARK."""
    away: Callable[[], AbstractContextManager[None]]
    """While the block lasts, the service does not answer."""
    refuses: Callable[[], AbstractContextManager[None]]
    """While the block lasts, the service refuses every change: it answers, and no retry would help."""


@dataclass(frozen=True)
class MinterPlace:
    """A minter, and the collection that it mints for."""

    open: Callable[[], Minter]
    """The minter as another process would open it."""
    profile: Profile
    registry: Registry | None = None
    """None: the minter tells nobody about its ARKs."""
    check_character: bool = True
    """Whether ARKs end with NOID's check character."""


MinterSubject: TypeAlias = Callable[[Path], AbstractContextManager[MinterPlace]]
"""`--arkline-minter=MODULE:FUNCTION`: gets a folder; for every test, the registry knows nothing."""


@dataclass(frozen=True)
class OwnInventory:
    """A site's inventory service, which knows no object."""

    open: Callable[[], InventoryService]
    """The service as another process would open it."""
    registry: Registry
    """`known`: the object's versions that the service has."""
    store: Callable[[str, int], str] = lambda ark, number: f"http://storage.example/{ark}/{number}"
    """Store the object's version of this number where the service reads it, and return its URL."""


@dataclass(frozen=True)
class InventoryPlace:
    """The inventory in an empty database, and the service beside it."""

    database: str
    """URL of SQLAlchemy."""
    service: OwnInventory | None = None
    """None: the database alone."""


InventorySubject: TypeAlias = Callable[[Path], AbstractContextManager[InventoryPlace]]
"""`--arkline-inventory=MODULE:FUNCTION`: gets a folder, and makes an empty place for every test."""


LogIn: TypeAlias = Callable[["requests.Session", str], "requests.Response"]
"""Log a person in with this browser, from the address of the button on; the last answer."""


@dataclass(frozen=True)
class LoginPlace:
    """A way to log in, and the people who try."""

    open: Callable[[], "Login"]
    """The login as another web process would open it."""
    log_in: LogIn
    """Somebody with rights."""
    person: Principal
    """Who that is, with the rights that the site gives."""
    stranger: LogIn
    """Somebody whom the provider knows, and the site gives no rights."""
    withdrawn: Callable[[], AbstractContextManager[None]]
    """While the block lasts, the person has no rights."""
    away: Callable[[], AbstractContextManager[None]]
    """While the block lasts, arkline gets no usable answer of the provider."""


LoginSubject: TypeAlias = Callable[[Path], AbstractContextManager[LoginPlace]]
"""`--arkline-login=MODULE:FUNCTION`: gets a folder."""


@dataclass(frozen=True)
class Sample:
    """The content of a file, and what the check must say of it."""

    content: bytes
    verdict: CheckVerdict
    code: str = ""
    suffix: str = ""


@dataclass(frozen=True)
class CheckSubject:
    """A check, as a profile asks for it, with samples of what it is there for."""

    rule: CheckRule
    """With `command` for a program; with the settings that the tests shall use."""
    samples: tuple[Sample, ...]
    never_finds: str = ""
    """Why no file is `found`: a check that identifies formats, for example, names and does not judge."""
    check: type[Check] | None = None
    """The class, if no entry point names it yet."""

    @property
    def kind(self) -> type[Check]:
        kind = self.check or installed(self.rule)
        if kind is None:
            raise LookupError(f"no check is called {self.rule.name}, and the subject gives no class")
        return kind

    def opened(self) -> Check:
        return self.kind(configured(self.rule, self.kind))


CheckGiver: TypeAlias = Callable[[], CheckSubject]
"""`--arkline-check=MODULE:FUNCTION`."""
