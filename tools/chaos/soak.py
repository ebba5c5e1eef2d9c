"""A soak test: thousands of small jobs without faults, while each process's memory and files are sampled."""

import hashlib
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from entrypoints.stack.supervisor import StopSignals
from pipeline.records import SubmissionType
from tests.e2e.collection import manifest
from tools.chaos.actors import Actor
from tools.chaos.acts import Acts
from tools.chaos.background import SecondBeat, Submitter
from tools.chaos.checker import judge
from tools.chaos.cluster import Cluster, run_cluster
from tools.chaos.deposits import Deposit, DepositedObject
from tools.chaos.fakes import ProxiedSource
from tools.chaos.final_state import read
from tools.chaos.operator import OperatorThread
from tools.chaos.problem import Problem
from tools.chaos.quiet import Quiet
from tools.chaos.run import log_to

BATCH_JOBS = 250
"""Jobs per batch."""

BATCH_INTERVAL = 2.0
"""Seconds between two submissions."""

SAMPLE_INTERVAL = 2.0
"""Seconds between two samples."""

JOB_SECONDS = 2.0
"""Average seconds per job after which the soak gives up."""

GROWTH = 1.15
"""Maximum growth of a process from the second to the last quarter; the first quarter is start-up."""

SPARE_KB = 8192
SPARE_FILES = 8
"""Allowance for both, independent of size: a pool process may be young or old when sampled."""

_MANIFEST = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest"


@dataclass
class Series:
    """The samples of one kind of process: each is the maximum over its processes."""

    rss_kb: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    @property
    def flat(self) -> bool:
        return _flat(self.rss_kb, SPARE_KB) and _flat(self.files, SPARE_FILES)


@dataclass
class SoakResult:
    jobs: int
    seconds: float
    series: dict[str, Series]
    problems: tuple[Problem, ...]

    @property
    def clean(self) -> bool:
        return not self.problems and all(series.flat for series in self.series.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "jobs": self.jobs,
            "seconds": round(self.seconds, 1),
            "processes": {
                name: {
                    "rss_mb": [round(value / 1024, 1) for value in quarters(series.rss_kb)],
                    "files": quarters(series.files),
                    "flat": series.flat,
                }
                for name, series in sorted(self.series.items())
            },
            "problems": [f"{problem.sort}: {problem.about} {problem.text}" for problem in self.problems],
        }


def table(result: SoakResult) -> str:
    """Medians of the run's four quarters, one line per kind of process."""
    lines = ["| process | memory of the quarters, MB | files of the quarters | flat |", "|---|---|---|---|"]
    for name, figures in result.as_json()["processes"].items():
        memory, files = (", ".join(f"{value:g}" for value in figures[key]) for key in ("rss_mb", "files"))
        lines.append(f"| {name} | {memory} | {files} | {'yes' if figures['flat'] else 'NO'} |")
    lines.append(f"{result.jobs} jobs in {result.seconds:.0f} s, {len(result.problems)} problems")
    lines += [f"{problem.sort}: {problem.about} {problem.text}" for problem in result.problems[:12]]
    return "\n".join(lines) + "\n"


def quarters(values: list[int]) -> list[float]:
    """The median of each quarter of a series; a very short series is returned as it is."""
    length = len(values) // 4
    if not length:
        return [float(value) for value in values]
    return [median(values[start * length : (start + 1) * length]) for start in range(4)]


def _flat(values: list[int], spare: int) -> bool:
    known = quarters(values)
    return len(known) < 4 or known[3] <= known[1] * GROWTH + spare


def soak(seed: int, jobs: int, folder: Path, signals: StopSignals, say: Callable[[str], None]) -> SoakResult:
    """Deposit `jobs` files of one kilobyte, and wait until all is stored, recorded and reported.

    A soak that is stopped has problems, because jobs are left, and the figures up to then.
    """
    with ExitStack() as held:
        cluster = held.enter_context(run_cluster(folder))
        log_to(folder / "log" / "arena.log")
        deposits = _deposits(seed, jobs, cluster.fakes.source)
        submitter = Submitter(cluster.settings, deposits, cluster.fakes.source.url)
        beat = SecondBeat(cluster.settings)
        operator = OperatorThread(cluster.settings, say)
        for thread in (submitter, beat, operator):
            thread.start()
            held.callback(thread.stop)
        quiet = Quiet(cluster.settings, submitter, operator, beat)
        began = time.monotonic()
        series = _sample_until(cluster, quiet, signals, began + 60 + jobs * JOB_SECONDS, say)
        seconds = time.monotonic() - began
        cluster.stop()
        final = read(cluster)
        return SoakResult(jobs, seconds, series, judge(deposits, submitter.bids, final, Acts()).problems)


def _sample_until(
    cluster: Cluster, quiet: Quiet, signals: StopSignals, deadline: float, say: Callable[[str], None]
) -> dict[str, Series]:
    series: dict[str, Series] = defaultdict(Series)
    quiet.start()
    while not quiet.reached.is_set() and time.monotonic() < deadline:
        if signals.received:
            break  # the figures so far are still useful
        cluster.poll()
        for actor in cluster.actors:
            _sample(actor, series)
        if len(series["redis"].files) % 15 == 1:
            # os.walk skips folders of attempts that vanish while it walks
            stored = sum("0=ocfl_object_1.1" in names for _, _, names in os.walk(cluster.settings.storage))
            say(f"{stored} objects stored, {deadline - time.monotonic():.0f} s left: {quiet.state}")
        quiet.reached.wait(SAMPLE_INTERVAL)
    quiet.stop()
    return dict(series)


def _sample(actor: Actor, series: dict[str, Series]) -> None:
    """Sample the process itself, and the largest process of its pool."""
    measured = [_measure(pid) for pid in actor.pids]
    for name, some in ((actor.name, measured[:1]), (f"{actor.name} pool", measured[1:])):
        if known := [figures for figures in some if figures is not None]:
            series[name].rss_kb.append(max(rss for rss, _ in known))
            series[name].files.append(max(files for _, files in known))


def _measure(pid: int) -> tuple[int, int] | None:
    """Resident memory in KB and open file descriptors; None if the process has ended."""
    place = Path(f"/proc/{pid}")
    try:
        status = (place / "status").read_text()
        files = len(list((place / "fd").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return None
    lines = [line.split() for line in status.splitlines() if line.startswith("VmRSS:")]
    return (int(lines[0][1]), files) if lines else None


def _deposits(seed: int, jobs: int, source: ProxiedSource) -> list[Deposit]:
    chance = random.Random(f"soak {seed}")
    deposits = []
    for number, start in enumerate(range(0, jobs, BATCH_JOBS)):
        rows, objects = [], []
        for n in range(start, min(start + BATCH_JOBS, jobs)):
            name, body = f"s{n}.bin", chance.randbytes(1024)
            url = source.put(f"/{name}", body)
            digest = hashlib.sha256(body).hexdigest()
            rows.append(f"{url} | sha256 | {digest} | 1024 |  | {name} |  | soak-{n} | A. Maker | {n} | 2020")
            digests = frozenset({hashlib.sha512(body).hexdigest()})
            objects.append(DepositedObject(f"/{name}", {name: digests}, f"soak-{n}"))
        path = f"/soak-{number}.checkm"
        source.put(path, manifest(_MANIFEST, rows))
        kind = SubmissionType.SINGLE_FILE_BATCH_MANIFEST
        deposits.append(Deposit(number * BATCH_INTERVAL, f"soak-{number}", kind, path, tuple(objects)))
    return deposits
