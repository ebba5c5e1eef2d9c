"""The result of a run: the problems found, and the figures that are reported."""

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
"""Seconds after a fault until beat, Redis and the other workers are surely as before."""

SAME = 0.5
"""Seconds between a kill and its own entry in the list of faults at most."""


@dataclass(frozen=True)
class Result:
    jobs: int
    completed: int
    failed: int
    planted: int
    problems: tuple[Problem, ...]
    repeated: Repeated = field(default_factory=Repeated)
    tries: int = 0
    """Tries that met a passing fault and were made again."""
    attempts: int = 0
    """Attempts of a job in all states; an undisturbed job needs seven."""

    @property
    def clean(self) -> bool:
        return not self.problems

    def count(self, sort: Category) -> int:
        return sum(each.sort is sort for each in self.problems)

    def as_json(self, run_log: RunLog) -> dict[str, Any]:
        kinds = Counter(each.fault.kind.label for each in run_log.injected)
        measured = [each for each in run_log.recoveries if each.seconds is not None]
        alone = [each for each in measured if not disturbed(each, run_log.injected)]
        return {
            "seed": run_log.options.seed,
            "jobs": self.jobs,
            "completed": self.completed,
            "failed": self.failed,
            "planted": self.planted,
            "faults": len(run_log.injected),
            **{sort.value: self.count(sort) for sort in Category},
            "recovery_p95_s": p95(measured),
            "recovery_max_s": max((round(each.seconds or 0, 1) for each in measured), default=None),
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
            "kinds": dict(sorted(kinds.items())),
            "recovery_seconds": sorted(round(each.seconds or 0, 1) for each in measured),
            "recovery_alone_seconds": sorted(round(each.seconds or 0, 1) for each in alone),
            "problems": [f"{each.sort}: {each.about} {each.text}" for each in self.problems],
        }


def result_of(run_log: RunLog, final: FinalState, judgement: Judgement) -> Result:
    states = Counter(job.status.status for job in final.jobs.values())
    return Result(
        jobs=sum(len(deposit.objects) for deposit in run_log.collection.deposits),
        completed=states[JobState.COMPLETED],
        failed=states[JobState.FAILED],
        planted=sum(
            bool(deposited.planted) for each in run_log.collection.deposits for deposited in each.objects
        ),
        problems=judgement.problems,
        repeated=judgement.repeated,
        tries=sum(entry.event is None for job in final.jobs.values() for entry in job.history[1:]),
        attempts=sum(job.status.attempt for job in final.jobs.values()),
    )


def disturbed(recovery: Recovery, injected: list[Injected]) -> bool:
    """Whether a second fault of what recovers a job struck while it was recovered, or shortly before."""
    end = recovery.killed + (recovery.seconds or 0)
    return any(
        each.fault.kind in MACHINERY
        and abs(each.began - recovery.killed) > SAME
        and each.began < end
        and each.ended > recovery.killed - AFTERMATH
        for each in injected
    )


def p95(recoveries: list[Recovery]) -> float | None:
    seconds = sorted(each.seconds for each in recoveries if each.seconds is not None)
    if len(seconds) < 2:
        return round(seconds[0], 1) if seconds else None
    return round(quantiles(seconds, n=20, method="inclusive")[18], 1)
