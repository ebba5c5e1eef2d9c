"""Minters as the conformance suite gets them: the local one, EZID's, and two that break a promise."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pipeline.identifiers.ezid import EzidMinter
from pipeline.identifiers.minter import Minter
from pipeline.outcome import StepFailed, system
from pipeline.profiles.profile import Profile
from plugins.conformance.subjects import MinterPlace, Registry
from tests.servers.ezid import PASSWORD, USER, Fault, ezid
from tests.support.repository import OWNER
from tests.support.step_context import local_settings

PROFILE = Profile(name="demo", owner=OWNER, collections=("ark:/99999/collection",))
REFUSAL = Fault(400, b"error: bad request - invalid metadata")


@contextmanager
def local(_folder: Path) -> Iterator[MinterPlace]:
    yield MinterPlace(Minter, PROFILE)


@contextmanager
def of_ezid(folder: Path, kind: type[EzidMinter] = EzidMinter) -> Iterator[MinterPlace]:
    with ExitStack() as server:
        service = server.enter_context(ezid())
        login = {"ezid_user": USER, "ezid_password": PASSWORD}
        settings = local_settings(folder, ezid_url=service.url, **login)

        @contextmanager
        def away() -> Iterator[None]:
            server.close()
            yield
            server.enter_context(ezid(service))

        @contextmanager
        def refuses() -> Iterator[None]:
            service.faults = [REFUSAL] * 100
            yield
            service.faults = []

        def known(ark: str) -> dict[str, str] | None:
            elements = service.identifiers.get(ark)
            return None if elements is None else dict(elements)

        yield MinterPlace(lambda: kind(settings, pause=0.01), PROFILE, Registry(known, away, refuses))


class _Forgetful(Minter):
    """Mints a second ARK for the second attempt."""

    def mint(self, job: Any, profile: Any, job_record: Any, *given: Any, **named: Any) -> str:
        job_record.kept.pop(job.jid, None)
        return super().mint(job, profile, job_record, *given, **named)


@contextmanager
def forgetful(_folder: Path) -> Iterator[MinterPlace]:
    yield MinterPlace(_Forgetful, PROFILE)


class _Hasty(EzidMinter):
    """Fails the job while EZID is away."""

    def mint(self, *given: Any, **named: Any) -> str:
        try:
            return super().mint(*given, **named)
        except StepFailed as failure:
            raise system(failure.message) from failure


@contextmanager
def hasty(folder: Path) -> Iterator[MinterPlace]:
    with of_ezid(folder, _Hasty) as place:
        yield place
