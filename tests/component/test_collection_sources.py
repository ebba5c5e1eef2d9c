"""A collection whose profile lists its sources is fetched from these alone."""

from dataclasses import fields

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.outcome import Done, StepFailed
from pipeline.profiles.profile import Profiles
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.sources.limits import NO_LIMIT
from pipeline.states import FailureKind
from pipeline.steps import download
from pipeline.steps.context import Clients, StepContext
from tests.servers.http_source import HttpSource
from tests.support.downloading import job_of_file
from tests.support.memory_record import MemoryJobRecord
from tests.support.step_context import collection, services


def context_of(settings: Settings) -> StepContext:
    """As a worker makes it for an attempt."""
    opened = services(settings)
    clients = Clients(**{field.name: getattr(opened, field.name) for field in fields(Clients)})
    profiles = Profiles(settings.profiles)
    return clients.step_context(MemoryJobRecord(), UNATTENDED, NO_LIMIT, lambda: profiles.get("demo"))


def job(settings: Settings, source: HttpSource) -> Job:
    return job_of_file(settings, source.put("/a", b"content"))


def test_nothing_is_requested_from_a_host_that_the_profile_does_not_list(
    settings: Settings, source: HttpSource
) -> None:
    collection(settings, sources=["example.org", f"127.0.0.1:{source.port + 1}"])

    with pytest.raises(StepFailed, match=r"not fetched from 127\.0\.0\.1") as failure:
        download.work(job(settings, source), context_of(settings))

    assert failure.value.kind is FailureKind.CONTENT
    assert "127.0.0.1, port" in failure.value.detail
    assert source.count() == 0


@pytest.mark.parametrize("listed", [[], ["127.0.0.0/8"]], ids=["none", "its network"])
def test_a_listed_source_is_fetched(settings: Settings, source: HttpSource, listed: list[str]) -> None:
    collection(settings, sources=listed)

    assert isinstance(download.work(job(settings, source), context_of(settings)), Done)


def test_sources_that_are_not_known_fail_the_download_and_no_size_request(
    settings: Settings, source: HttpSource
) -> None:
    waiting = job(settings, source)
    context = context_of(settings)
    (settings.profiles / "demo.yaml").write_text("owner: nobody")

    assert context.fetcher.size(waiting.configuration.payload_url) is None
    with pytest.raises(StepFailed) as failure:
        download.work(waiting, context)

    assert failure.value.kind is FailureKind.SYSTEM
    assert source.count() == 0
