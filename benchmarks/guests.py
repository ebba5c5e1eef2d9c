"""What checks cost: real jobs of one small file with and without them, on the same servers.

`ARKLINE_BENCH_CHECKS` (`clamav,pronom`): the checks of the profile. clamd runs with one signature of its own;
its CPU is counted too. `ratio` divides the CPU of all processes for one job with checks by that without;
`ratio_without_clamd` leaves out that of clamd, which a site may run elsewhere.
"""

import os
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import _source
from benchmarks._batches import complete_files
from benchmarks._costs import Costs, figures, measured, spread
from benchmarks._machine import machine, use_two_cores
from benchmarks._options import ROUNDS, option
from benchmarks._output import report, run
from benchmarks._stack import PROFILES, stack
from tests.servers import clamd

JOBS = option("JOBS", 200)
CHECKS = os.environ.get("ARKLINE_BENCH_CHECKS", "clamav,pronom").split(",")
PROCESSES = 2
GOAL = 1.15
WARM_UP = 2


def _use(profiles: Path, checks: str) -> None:
    """The collection's next batches have these checks."""
    given = (PROFILES / "demo.yaml").read_text()
    (profiles / "demo.yaml").write_text(f"{given}\nchecks: [{checks}]\n")


def main() -> None:
    use_two_cores()
    without, checked = [], []
    with (
        tempfile.TemporaryDirectory() as name,
        clamd.running(_folder(name, "clamd")) as scanner,
        _source.serving(_folder(name, "source")) as source,
    ):
        profiles = _folder(name, "profiles")
        _use(profiles, "")
        os.environ["ARKLINE_CLAMD"] = scanner.unix
        with stack(profiles=profiles) as own:
            where = machine(own)
            worker, beat = own.fleet.worker("w", PROCESSES, wait=False), own.fleet.beat(wait=False)
            counted = own.counted(worker=worker, beat=beat) | {"clamd": scanner.process.pid}
            work = partial(complete_files, own.session, own.settings, source, Path(name) / "source")
            measure = partial(measured, own.session, counted, JOBS, partial(work, JOBS))
            for checks in ("", ",".join(CHECKS)):
                _use(profiles, checks)
                work(WARM_UP * JOBS)
            for _ in range(ROUNDS):
                _use(profiles, "")
                without.append(measure())
                _use(profiles, ",".join(CHECKS))
                checked.append(measure())
    pairs = list(zip(checked, without, strict=True))
    ratios = [costs.cpu_ms / plain.cpu_ms for costs, plain in pairs]
    apart = [_without_clamd(costs) / plain.cpu_ms for costs, plain in pairs]
    facts = {
        "checks": CHECKS,
        "ratio_without_clamd": round(median(apart), 3),
        "ratio_without_clamd_range": spread(apart),
        **figures("without", without),
        **figures("checked", checked),
        **where,
    }
    report("guests", ratios, GOAL, median(ratios) <= GOAL, facts)


def _without_clamd(costs: Costs) -> float:
    """CPU of one job in milliseconds."""
    return costs.cpu_ms - 1000 * costs.cpu_seconds["clamd"] / costs.jobs


def _folder(parent: str, name: str) -> Path:
    folder = Path(parent) / name
    folder.mkdir()
    return folder


if __name__ == "__main__":
    run(main, __doc__)
