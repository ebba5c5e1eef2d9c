"""Checks that deposits from other hosts continue while one content host is out."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.records import Job
from pipeline.states import JobState
from tools.chaos.fakes import FAR
from tools.chaos.problem import Category, Problem
from tools.chaos.run import Injected
from tools.chaos.schedule import BAD_DEPOSITS, OF_ONE_HOST

LONG = 20.0
"""Seconds: a fault that may last longer can stop every download, so an overlapping outage proves nothing."""

ENOUGH = 3
"""Minimum of waiting jobs of the other host: a single one may be between two retries of its own."""

_BEFORE = (JobState.PENDING, JobState.HELD, JobState.ESTIMATING, JobState.PROVISIONING, JobState.DOWNLOADING)


@dataclass(frozen=True)
class Outage:
    """A fault of the run, in wall clock seconds; `longest`: the maximum of its kind."""

    began: float
    ended: float
    of_one_host: bool
    longest: float


def outages(injected: list[Injected]) -> list[Outage]:
    """The faults of the run that may stop deposits."""
    offset = time.time() - time.monotonic()
    return [
        Outage(one.began + offset, one.ended + offset, one.fault.kind in OF_ONE_HOST, one.fault.kind.longest)
        for one in injected
        if one.fault.kind not in BAD_DEPOSITS
    ]


def check_other_hosts(faults: list[Outage], jobs: list[Job]) -> Iterator[Problem]:
    """Check that in each undisturbed outage of one host some job of the other host downloads."""
    for outage in undisturbed(faults):
        waiting = [job for job in jobs if _waits(job, outage.began)]
        done = [job for job in waiting if not _waits(job, outage.ended)]
        if len(waiting) >= ENOUGH and not done:
            text = (
                f"was waiting with {len(waiting) - 1} others of another host, and none was downloaded in the "
                f"{outage.ended - outage.began:.0f} s in which one host was out"
            )
            yield Problem(Category.ILLEGAL, waiting[0].jid, text)


def undisturbed(faults: list[Outage]) -> list[Outage]:
    """The outages of one host that no other long fault overlaps."""
    long = [fault for fault in faults if fault.longest >= LONG and not fault.of_one_host]
    return [
        outage
        for outage in faults
        if outage.of_one_host
        and not any(fault.began < outage.ended and outage.began < fault.ended for fault in long)
    ]


def _waits(job: Job, moment: float) -> bool:
    """Whether the other host's job existed at that moment and had yet to be downloaded."""
    if FAR in job.configuration.payload_url:
        return False
    past = [entry for entry in job.history if entry.at.timestamp() <= moment]
    return bool(past) and past[-1].state in _BEFORE
