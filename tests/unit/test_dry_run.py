"""What a dry run says of a job; how it is run and rendered is in tests/integration/test_dry_run.py."""

from pathlib import Path
from typing import Any

import pytest

from operations.deposits.dry_run import DryRun, DryRunJob, repeated
from pipeline.fixity import Digest
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


def test_more_files_than_the_collection_takes_would_fail(settings: Settings, source: HttpSource) -> None:
    job = read(settings, source, ["http://x.edu/a", "http://x.edu/b"], object_files=1)

    assert job.failures == [
        "the object has 2 files, but collection demo accepts at most 1: divide it, or ask the collection's "
        "owner"
    ]


def test_more_files_than_the_settings_allow_would_fail(settings: Settings, source: HttpSource) -> None:
    few = settings.model_copy(update={"object_files": 1})

    job = read(few, source, ["http://x.edu/a", "http://x.edu/b"])

    assert job.failures[0].startswith("manifest m.checkm: line 4: the manifest has more than 1 rows: ")


def test_a_size_that_is_not_the_sources_would_fail_with_its_line(
    settings: Settings, source: HttpSource
) -> None:
    url = source.put("/a", b"alpha")

    job = asked(settings, read(settings, source, [f"{url} | | | 4", f"{url} | | | 5 | | b"]))

    assert job.failures == ["line 3: 'a': the source has 5 bytes, but 4 were declared"]


def test_more_bytes_than_the_collection_takes_would_fail(settings: Settings, source: HttpSource) -> None:
    job = read(settings, source, ["http://x.edu/a | | | 3000"])
    with HttpFetcher(settings) as fetcher:
        DryRun(submission(), profile(object_bytes=2000), settings, fetcher).check_sizes([job], largest=2500)

    assert job.failures == [
        "the object has more than the 2.0 kB that collection demo accepts: divide it, or ask the "
        "collection's owner to raise limits.object_bytes",
        "it needs 3.0 kB of working storage, of which only 2.5 kB may be used: it would never start",
    ]


@pytest.mark.parametrize(
    ("shared", "says"),
    [
        (
            {"payload_url": "http://x.edu/a"},
            "2 objects have the URL 'http://x.edu/a': every entry makes",
        ),
        (
            {"digest": Digest(algorithm="md5", value="0" * 32)},
            f"2 objects have the digest 'md5:{'0' * 32}': the same bytes are deposited more than once",
        ),
    ],
)
def test_what_two_jobs_of_a_batch_share_is_told(shared: dict[str, Any], says: str) -> None:
    jobs = [DryRunJob(planned(number, **shared), number) for number in (1, 2)]
    (told,) = repeated(jobs)

    assert told.startswith(says)
