"""`manifest check`, the dry run of `submit` and the worker refuse a bad manifest for the same reasons."""

import pytest

from operations.deposits.dry_run import perform_dry_run
from operations.deposits.validation import ManifestBytes, check_manifest
from operations.site import Site
from pipeline.manifests.checkm import ManifestProfile
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profiles
from pipeline.records import PayloadType, SubmissionType
from pipeline.settings import Settings
from pipeline.states import FailureKind, JobState
from pipeline.steps import pending
from pipeline.working_storage import mount
from tests.servers.http_source import HttpSource
from tests.support import planting
from tests.support.manifests import BATCH, MD5, URL, manifest
from tests.support.operators import ANN
from tests.support.step_context import services, working_job
from zkstate.connection.session import Session

BAD_MANIFESTS = {
    "an empty manifest": (b"", 0),
    "a manifest without its last line": (manifest(URL, end=""), 0),
    "an unknown algorithm": (manifest(URL, f"{URL}2 | sha3 | {MD5}"), 4),
    "a digest that is too short": (manifest(URL, f"{URL}2 | md5 | {MD5[:-1]}"), 4),
    "a size with a unit": (manifest(URL, f"{URL}2 | | | 12 kB"), 4),
    "a name that is given twice": (manifest(f"{URL} ||||| a", f"{URL}2 ||||| a"), 4),
    "an address of another kind": (manifest(URL, "ftp://x.edu/a"), 4),
    "a manifest of another type": (manifest(URL, profile=BATCH), 2),
}
"""What is wrong -> the manifest, and the line of the first problem; 0 means the whole file."""


@pytest.mark.parametrize("case", BAD_MANIFESTS)
def test_a_bad_manifest_is_refused_alike_by_its_check_by_the_dry_run_and_by_the_worker(
    session: Session, settings: Settings, source: HttpSource, case: str
) -> None:
    mount.mark(settings.working)
    data, line = BAD_MANIFESTS[case]
    url = source.put("/bad.checkm", data)
    fold = not Profiles(settings.profiles).get("demo").case_sensitive_names

    checked = check_manifest(settings, ManifestBytes("bad.checkm", data), ManifestProfile.OBJECT, fold)
    submission = planting.submission(
        payload_url=url, payload_filename="bad.checkm", type=SubmissionType.OBJECT_MANIFEST
    )
    (trouble,) = perform_dry_run(Site(settings, session), ANN, submission).failures
    job = working_job(settings, JobState.PENDING, PayloadType.OBJECT_MANIFEST, url)
    with pytest.raises(StepFailed) as refused:
        pending.work(job, services(settings))

    problems = "; ".join(
        f"line {problem.line}: {problem.message}" if problem.line else problem.message
        for problem in checked.errors
    )
    assert checked.errors[0].line == line
    assert trouble.message == refused.value.message == f"manifest bad.checkm: {problems}"
    assert refused.value.kind is FailureKind.CONTENT
