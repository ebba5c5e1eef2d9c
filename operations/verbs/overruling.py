"""Findings of checks that stopped a job, and which of them an operator overrules.

A finding is named by its digest, which is that of one job's files, or as CHECK:CODE, which is the same for
all jobs in which the check found the same.
"""

from collections.abc import Collection, Iterable, Iterator

from pipeline.checks import FINDING, Stopping
from pipeline.errors import UsageRefused
from pipeline.records import Job
from pipeline.states import JobState
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Missing
from zkstate.record import jobs


def findings_of(job: Job) -> tuple[str, ...]:
    """The digests of the findings that stopped the job.

    Those in its message are included: an earlier release recorded them there alone, and cut long messages.
    """
    if job.status.status is not JobState.FAILED:
        return ()
    recorded = (stopping.finding for _, stopping in _stopping(job))
    return tuple(dict.fromkeys((*recorded, *FINDING.findall(job.status.message))))


def names_of(job: Job) -> tuple[str, ...]:
    """The findings that stopped the job, each as CHECK:CODE; empty if the record lacks some."""
    stopping = list(_stopping(job)) if job.status.status is JobState.FAILED else []
    if any(one.codes is None for _, one in stopping):
        return ()
    return tuple(name for check, one in stopping for name in _named(check, one))


def names_in(session: Session, jid: str) -> tuple[str, ...]:
    """As `names_of`; empty also if there is no such job, or if it cannot be read."""
    try:
        return names_of(jobs.load(session, jid))
    except (Missing, Corrupt):
        return ()


def stopped_by(session: Session, jids: Iterable[str], findings: Collection[str]) -> list[str]:
    """The jobs that at least one of the findings stopped."""
    named = set(findings)
    loaded = jobs.load_present(session, list(jids))
    return [job.jid for job in loaded if named & {*findings_of(job), *_all_named(job)}]


def overruled(job: Job, findings: Collection[str]) -> str:
    """The digests of the named findings, for the history.

    UsageRefused if none of the findings stopped the job, or if one is named as CHECK:CODE and another one,
    which is not named, would stop the job again.
    """
    known, by_code = findings_of(job), [name for name in findings if name in _all_named(job)]
    if not by_code and not set(findings) & set(known):
        every = (*known, *_all_named(job))
        hint = f"; it names {' and '.join(every)}" if every else ""
        raise UsageRefused(f"the failure of {job.jid} names no finding {' or '.join(findings):.140}{hint}")
    digests = [name for name in findings if name in known]
    for check, stopping in _stopping(job):
        if by_code and stopping.finding not in digests:
            if stopping.codes is None or not set(_named(check, stopping)) <= set(by_code):
                raise UsageRefused(
                    f"the check {check} stopped {job.jid} for further findings: read them, and overrule "
                    f"{stopping.finding}, which names them all"
                )
            digests.append(stopping.finding)
    return " ".join(dict.fromkeys(digests))


def _stopping(job: Job) -> Iterator[tuple[str, Stopping]]:
    """The checks that stopped the job, and their findings."""
    for run in job.status.checks or ():
        if run.stopping is not None:
            yield run.check, run.stopping


def _named(check: str, stopping: Stopping) -> tuple[str, ...]:
    return tuple(f"{check}:{code}" for code in stopping.codes or ())


def _all_named(job: Job) -> tuple[str, ...]:
    return tuple(name for check, stopping in _stopping(job) for name in _named(check, stopping))
