"""Compares what checks found and reviewers decided with the deposits: it is recorded once, and obeyed."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from pipeline.records import Job
from pipeline.states import FailureKind, JobState
from tests.servers.clamd import EICAR_NAME
from tools.chaos.acts import Acts
from tools.chaos.deposits import REJECTION, VIRUS, Deposit, DepositedObject
from tools.chaos.final_state import CheckedVersion, FinalState
from tools.chaos.operator_verbs import REJECTED, path_of
from tools.chaos.problem import Category, Problem
from tools.chaos.profiles import CHECKED, CHECKS, SCANNED

SCANNER, *_ = CHECKS
"""The check that finds viruses."""


def check_findings(
    deposits: list[Deposit], final: FinalState, objects: Mapping[str, DepositedObject], acts: Acts
) -> Iterator[Problem]:
    runs: dict[str, list[CheckedVersion]] = defaultdict(list)
    for run in final.runs:
        runs[run.jid].append(run)
    for jid, deposited in objects.items():
        job = final.jobs[jid]
        if job.status.status is JobState.COMPLETED:
            yield from _of_version(jid, deposited, runs[jid], lost=jid in acts.lost_folders)
        elif runs[jid]:
            yield Problem(Category.ILLEGAL, jid, f"is {job.status.status}, and has runs of checks")
        elif job.status.kind is FailureKind.CONTENT:
            yield from _named_cause(job, deposited)
    yield from _stored_viruses(deposits, final, acts)


def _of_version(
    jid: str, deposited: DepositedObject, runs: list[CheckedVersion], *, lost: bool
) -> Iterator[Problem]:
    """Check that each check of the collection ran once, and each file has its findings once."""
    expected = CHECKS if deposited.profile in CHECKED else ()
    times = Counter(run.check for run in runs)
    for check in expected:
        if not times[check] and not lost:
            yield Problem(Category.LOST, jid, f"the inventory has no run of {check}")
    for check, number in times.items():
        if check not in expected:
            yield Problem(
                Category.ILLEGAL, jid, f"the inventory has a run of {check}, which was not asked for"
            )
        elif number > 1:
            yield Problem(Category.DUPLICATED, jid, f"the inventory has {number} runs of {check}")
    for run in runs:
        yield from _of_files(jid, deposited, run)


def _of_files(jid: str, deposited: DepositedObject, run: CheckedVersion) -> Iterator[Problem]:
    by_path = defaultdict[str, list[tuple[str, str]]](list)
    for line in run.findings:
        by_path[line.path].append((line.verdict, line.code))
    for path in sorted(deposited.files.keys() ^ by_path.keys()):
        what = "has no finding" if path in deposited.files else "was not deposited"
        yield Problem(Category.LOST, jid, f"{run.check}: {path} {what}")
    for path, findings in by_path.items():
        if len(set(findings)) < len(findings) or (run.check == SCANNER and len(findings) > 1):
            yield Problem(Category.DUPLICATED, jid, f"{run.check}: {path} has the findings {findings}")
        if any(verdict == "unchecked" and not code for verdict, code in findings):
            yield Problem(Category.ILLEGAL, jid, f"{run.check}: {path} is unchecked without a reason")
        if run.check == SCANNER and not _is_true(findings[0], infected=path in deposited.infected):
            yield Problem(Category.ILLEGAL, jid, f"{run.check}: {path} is called {findings}")


def _is_true(finding: tuple[str, str], *, infected: bool) -> bool:
    """Whether the scanner may say so."""
    verdict, _ = finding
    return verdict == "unchecked" or finding == (("found", EICAR_NAME) if infected else ("fine", ""))


def _named_cause(job: Job, deposited: DepositedObject) -> Iterator[Problem]:
    """Check that the message of a job that was stopped says by what."""
    said = {VIRUS: ("clamav found something in", "(finding "), REJECTION: (REJECTED,)}
    message = job.status.message
    if any(text not in message for text in said.get(deposited.planted, ())):
        yield Problem(Category.ILLEGAL, job.jid, f"its {deposited.planted} is not in its message: {message}")


def _stored_viruses(deposits: list[Deposit], final: FinalState, acts: Acts) -> Iterator[Problem]:
    """Check that storage has no virus of a collection in which a virus stops the job."""
    profiles = {deposited.path: deposited.profile for deposit in deposits for deposited in deposit.objects}
    viruses = {
        digest
        for deposit in deposits
        for deposited in deposit.objects
        for name in deposited.infected
        for digest in deposited.files[name]
    }
    for version in final.versions:
        job = final.jobs.get(version.jid)
        path = path_of(job) if job else acts.deleted_jobs.get(version.jid, "")
        if profiles.get(path) == SCANNED and viruses & set(version.files.values()):
            text = f"version {version.number} of {version.ark} has a virus, which should have stopped its job"
            yield Problem(Category.ILLEGAL, version.jid, text)
