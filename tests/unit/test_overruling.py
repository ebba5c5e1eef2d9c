"""Which findings of checks stopped a job, by which names, and which of them an operator overrules."""

import pytest

from operations.verbs.overruling import findings_of, names_of, overruled
from pipeline.checks import CheckSummary, Stopping
from pipeline.errors import UsageRefused
from pipeline.records import Job
from pipeline.states import FailureKind, JobState
from tests.support.checks import found_in, scanned
from tests.support.records import a_job

A, B = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"


def run(check: str, digest: str, *codes: str) -> CheckSummary:
    """A run that stopped the job."""
    stopping = Stopping(finding=digest, codes=codes or None)
    summary = CheckSummary.of(scanned(found_in("a.txt", "Eicar")), stopping=stopping)
    return summary.model_copy(update={"check": check})


def stopped(*runs: CheckSummary, message: str = "", state: JobState = JobState.FAILED) -> Job:
    return a_job(state=state, kind=FailureKind.CONTENT, message=message, checks=runs)


def test_a_finding_is_named_by_its_digest_or_by_check_and_code() -> None:
    job = stopped(run("clamav", A, "Eicar", "encrypted"), run("words", B, "Site.Forbidden"))

    assert findings_of(job) == (A, B)
    assert names_of(job) == ("clamav:Eicar", "clamav:encrypted", "words:Site.Forbidden")
    assert overruled(job, names_of(job)) == f"{A} {B}"
    assert overruled(job, (B, A, B)) == f"{B} {A}"


def test_one_digest_may_be_overruled_after_the_other() -> None:
    job = stopped(run("clamav", A, "Eicar"), run("words", B, "Site.Forbidden"))

    assert overruled(job, (A,)) == A


def test_a_code_does_not_overrule_another_code_of_the_same_check() -> None:
    job = stopped(run("clamav", A, "Eicar", "Worm"))

    with pytest.raises(UsageRefused, match=f"further findings.*{A}"):
        overruled(job, ("clamav:Eicar",))


def test_a_code_does_not_overrule_what_another_check_found() -> None:
    job = stopped(run("clamav", A, "Eicar"), run("words", B, "Site.Forbidden"))

    with pytest.raises(UsageRefused, match=f"the check words stopped .* further findings.*{B}"):
        overruled(job, ("clamav:Eicar",))
    assert overruled(job, ("clamav:Eicar", B)) == f"{B} {A}"


def test_findings_of_too_many_codes_are_overruled_by_their_digest_alone() -> None:
    job = stopped(run("clamav", A), run("words", B, "Site.Forbidden"))

    assert names_of(job) == ()
    with pytest.raises(UsageRefused, match=A):
        overruled(job, ("words:Site.Forbidden",))
    assert overruled(job, (A, "words:Site.Forbidden")) == f"{A} {B}"


def test_a_finding_that_did_not_stop_the_job_is_refused_with_those_that_did() -> None:
    with pytest.raises(UsageRefused, match=f"names no finding clamav:Worm; it names {A} and clamav:Eicar"):
        overruled(stopped(run("clamav", A, "Eicar")), ("clamav:Worm",))


def test_several_names_are_for_jobs_that_have_one_of_them_each() -> None:
    job = stopped(run("clamav", A, "Eicar"))

    assert overruled(job, ("clamav:Eicar", "clamav:Worm", B)) == A


def test_of_a_job_that_an_earlier_release_stopped_the_message_names_the_digest() -> None:
    job = stopped(message=f"the check clamav found something (finding {A})")

    assert (findings_of(job), names_of(job)) == ((A,), ())
    assert overruled(job, (A,)) == A
    with pytest.raises(UsageRefused, match=f"it names {A}"):
        overruled(job, ("clamav:Eicar",))


def test_a_digest_that_a_long_message_lost_is_in_the_record() -> None:
    assert findings_of(stopped(run("clamav", A, "Eicar"), message="the check clamav found …")) == (A,)


def test_a_job_that_has_not_failed_has_no_finding_that_stops_it() -> None:
    job = stopped(run("clamav", A, "Eicar"), state=JobState.PROCESSING)

    assert (findings_of(job), names_of(job)) == ((), ())
