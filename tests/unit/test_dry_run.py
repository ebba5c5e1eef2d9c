"""What a dry run says of a job; how it is run and rendered is in tests/integration/test_dry_run.py."""

from pathlib import Path

import pytest

from operations.deposits.dry_run import DryRun, DryRunJob
from pipeline.profiles.profile import Profile, ProfileLimits
from pipeline.records import PayloadType
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.limits import SourceTimeouts
from tests.servers.http_source import HttpSource
from tests.support.manifests import OBJECT, manifest
from tests.support.planting import planned, submission
from tests.support.step_context import local_settings

MANIFEST = PayloadType.OBJECT_MANIFEST


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return local_settings(tmp_path)


def profile(**limits: int) -> Profile:
    return Profile(
        name="demo",
        owner="ark:/99999/o",
        collections=("ark:/99999/c",),
        limits=ProfileLimits.model_validate(limits),
    )


def read(settings: Settings, source: HttpSource, rows: list[str], **limits: int) -> DryRunJob:
    """A job whose manifest has these rows."""
    url = source.put("/m.checkm", manifest(*rows, profile=OBJECT))
    job = planned(1, payload_url=url, payload_type=MANIFEST, payload_name="m.checkm")
    with HttpFetcher(settings, SourceTimeouts(first_pause=0.01)) as fetcher:
        (found,) = DryRun(submission(), profile(**limits), settings, fetcher).read_jobs([job])
    return found


def asked(settings: Settings, job: DryRunJob) -> DryRunJob:
    with HttpFetcher(settings) as fetcher:
        DryRun(submission(), profile(), settings, fetcher).ask_sources([job])
    return job


def test_more_files_than_the_settings_allow_would_fail(settings: Settings, source: HttpSource) -> None:
    few = settings.model_copy(update={"object_files": 1})

    job = read(few, source, ["http://x.edu/a", "http://x.edu/b"])

    assert job.failures[0].startswith("manifest m.checkm: line 4: the manifest has more than 1 rows: ")
