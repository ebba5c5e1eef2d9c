"""The result of a run: the problems found, and the reported figures."""

from collections import Counter
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

from pipeline.states import JobState
from tools.chaos.final_state import FinalState
from tools.chaos.problem import Category, Judgement, Problem, Repeated
from tools.chaos.run import Injected, RunLog
from tools.chaos.schedule import MACHINERY
from tools.chaos.witness import Recovery

AFTERMATH = 10.0
"""Seconds after a fault until beat, Redis and the other workers have certainly recovered."""

SAME = 0.5
"""Maximum seconds between a kill and its own entry in the list of faults."""


@dataclass(frozen=True)
class Result:
    jobs: int
    completed: int
    failed: int
    planted: int
    problems: tuple[Problem, ...]
    repeated: Repeated = field(default_factory=Repeated)
    present: frozenset[str] = frozenset()
    """The jobs in the record at the end."""
    tries: int = 0
    """Attempts that met a transient fault and were retried."""
    attempts: int = 0
    """Attempts of a job in all states; an undisturbed job needs seven."""
    check_runs: int = 0
    viruses_found: int = 0
    """Files, of stored versions."""
    not_scanned: int = 0
    """Files of stored versions that clamd was given and did not check."""

    @property
    def clean(self) -> bool:
        return not self.problems

    def count(self, sort: Category) -> int:
        return sum(problem.sort is sort for problem in self.problems)

    def as_json(self, run_log: RunLog) -> dict[str, Any]:
        kinds = run_log.kinds()
        measured = [recovery for recovery in run_log.recoveries if recovery.seconds is not None]
        alone = [recovery for recovery in measured if not disturbed(recovery, run_log.injected)]
        return {
            "seed": run_log.options.seed,
            "jobs": self.jobs,
            "completed": self.completed,
            "failed": self.failed,
            "planted": self.planted,
            "faults": kinds.total(),
            **{sort.value: self.count(sort) for sort in Category},
            "recovery_p95_s": p95(measured),
            "recovery_max_s": max((round(recovery.seconds or 0, 1) for recovery in measured), default=None),
            "recoveries": len(measured),
            "recovery_alone_p95_s": p95(alone),
            "recoveries_alone": len(alone),
            "resumed": len(run_log.resumed),
            "tries_again": self.tries,
            "attempts": self.attempts,
            "mails_repeated": self.repeated.mails,
            "callbacks_repeated": self.repeated.callbacks,
            "ark_numbers_unused": self.repeated.unused_numbers,
            "seconds": round(run_log.seconds, 1),
            "quiet_after_s": None if run_log.quiet_after is None else round(run_log.quiet_after, 1),
            "small_disks": run_log.small_disks,
            "clocks": run_log.clocks,
            "hosts": run_log.options.hosts,
            "delay_by": run_log.delay_by,
            "checks": run_log.checks,
            "check_runs": self.check_runs,
            "viruses_found": self.viruses_found,
            "not_scanned": self.not_scanned,
            "deleted": sum(jid not in self.present for jid in run_log.acts.deleted_jobs),
            "deleted_batches": len(run_log.acts.deleted_batches),
            "cancelled_batches": len(run_log.acts.cancelled),
            "kinds": dict(sorted(kinds.items())),
            "recovery_seconds": sorted(round(recovery.seconds or 0, 1) for recovery in measured),
            "recovery_alone_seconds": sorted(round(recovery.seconds or 0, 1) for recovery in alone),
            "problems": [f"{problem.sort}: {problem.about} {problem.text}" for problem in self.problems],
        }


def result_of(run_log: RunLog, final: FinalState, judgement: Judgement) -> Result:
    states = Counter(job.status.status for job in final.deposited)
    return Result(
        jobs=sum(len(deposit.objects) for deposit in run_log.collection.deposits),
        completed=states[JobState.COMPLETED],
        failed=states[JobState.FAILED],
        planted=sum(
            bool(deposited.planted)
            for deposit in run_log.collection.deposits
            for deposited in deposit.objects
        ),
        problems=judgement.problems,
        repeated=judgement.repeated,
        present=frozenset(final.jobs),
        tries=sum(entry.event is None for job in final.deposited for entry in job.history[1:]),
        attempts=sum(job.status.attempt for job in final.deposited),
        check_runs=len(final.runs),
        viruses_found=sum(line.verdict == "found" for run in final.runs for line in run.findings),
        not_scanned=sum(
            line.verdict == "unchecked"
            for run in final.runs
            for line in run.findings
            if run.check == "clamav"
        ),
    )


def disturbed(recovery: Recovery, injected: list[Injected]) -> bool:
    """Whether a second fault of the recovery machinery struck during the recovery or shortly before."""
    end = recovery.killed + (recovery.seconds or 0)
    return any(
        other.fault.kind in MACHINERY
        and abs(other.began - recovery.killed) > SAME
        and other.began < end
        and other.ended > recovery.killed - AFTERMATH
        for other in injected
    )


def p95(recoveries: list[Recovery]) -> float | None:
    seconds = sorted(recovery.seconds for recovery in recoveries if recovery.seconds is not None)
    if len(seconds) < 2:
        return round(seconds[0], 1) if seconds else None
    return round(quantiles(seconds, n=20, method="inclusive")[18], 1)
