"""The context of a step in tests: real clients that the step uses, and none that it must not use."""

import json
from pathlib import Path
from typing import Any, Never

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.checking.process import Checker
from pipeline.decoding.decoder import Decoder
from pipeline.profiles.profile import Profiles
from pipeline.records import Job, PayloadType
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.limits import SourceTimeouts
from pipeline.states import JobState
from pipeline.steps.context import StepContext
from pipeline.working_storage import mount
from tests.support.memory_record import MemoryJobRecord
from tests.support.records import a_job


class _Unused:
    """An outside system that the step under test must not use."""

    def __getattr__(self, name: str) -> Never:
        raise AssertionError(f"a step that should not used {name}")


UNUSED: Any = _Unused()


class _AnyNames(_Unused):
    """A storage of which only the names that it can hold matter."""

    def distinguishes_case(self) -> bool:
        return True


ANY_NAMES: Any = _AnyNames()

RESERVED = 1 << 30
"""Bytes that are reserved for a job that is downloaded, unless a test says otherwise."""

DECODER = Decoder(Settings())
"""One for all tests of a process: its server starts once."""


def local_settings(home: Path, **changes: Any) -> Settings:
    """Settings in the test's folder, with sources on loopback allowed and short timeouts."""
    given = {
        "home": home,
        "profiles": home / "profiles",
        "allow_networks": "127.0.0.0/8",
        "fetch_tries": 2,
        "read_timeout": 5,
        **changes,
    }
    return Settings(**given)


def marked_settings(home: Path, **changes: Any) -> Settings:
    """As `local_settings`, with the mark in working storage: jobs have worked there."""
    settings = local_settings(home, **changes)
    mount.mark(settings.working)
    return settings


def services(
    settings: Settings,
    job_record: MemoryJobRecord | None = None,
    fetcher: HttpFetcher | None = None,
    attempt: Attempt = UNATTENDED,
) -> StepContext:
    return StepContext(
        settings=settings,
        profiles=Profiles(settings.profiles),
        profile_of=lambda: Profiles(settings.profiles).get("demo"),
        job_record=job_record or MemoryJobRecord(),
        fetcher=fetcher or HttpFetcher(settings, SourceTimeouts(first_pause=0.01)),
        minter_of=UNUSED,
        storage=ANY_NAMES,
        inventory=UNUSED,
        callback=UNUSED,
        mailer=UNUSED,
        decoder=DECODER,
        checker=Checker((settings.working,)),
        attempt=attempt,
    )


def collection(settings: Settings, **rules: Any) -> None:
    """Apply these rules to the collection of the tests' jobs."""
    settings.profiles.mkdir(parents=True, exist_ok=True)
    profile = {"name": "demo", "owner": "ark:/99999/fk4a", "collections": ["ark:/99999/fk4b"], **rules}
    (settings.profiles / "demo.yaml").write_text(json.dumps(profile))


def working_job(
    settings: Settings, state: JobState, payload_type: PayloadType, payload_url: str, **facts: Any
) -> Job:
    """A job with a working directory in the settings' working storage; `op` names its attempt."""
    if not settings.profiles.exists():
        collection(settings)
    reserved = facts.pop("space_needed", RESERVED if state is JobState.DOWNLOADING else 0)
    given = {
        "payload_type": payload_type,
        "payload_url": payload_url,
        "payload_name": payload_url.rpartition("/")[2],
        "working_dir": str(settings.working / "bid0000000001" / "jid0000000001"),
        "op": "attempt-1",
        "primary_id": None,
        **facts,
    }
    return a_job(1, state, **given).model_copy(update={"space_needed": reserved})
