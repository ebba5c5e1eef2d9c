"""The cost of a Celery task for each state of a job: while nobody listens to its events, and while one does.

The jobs of `ingest`, in turns on two fleets with the same servers. One carries its jobs without a task for
each state; the other is as shipped, without and with `celery events`, which is not counted. `ratio` divides
the CPU of all other processes for a job while somebody listens by that of the first fleet.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import _plain_carrier, _source
from benchmarks._batches import complete_files
from benchmarks._costs import Costs, figures, measured, spread
from benchmarks._machine import machine, use_two_cores
from benchmarks._options import ROUNDS, option
from benchmarks._output import report, run
from benchmarks._stack import stack
from pipeline.states import JOB
from tasks.broker import configured
from tests.support.fleet import Fleet, fleet
from tests.support.processes import await_ready
from zkstate.connection.session import connect

JOBS = option("JOBS", 200)
PROCESSES = 2
TASKS = JOBS * len(JOB.working())
LISTENER = "listener"
GOAL = 1.08
QUIET_GOAL = 1.02
WARM_UP = 2
"""Warm-up rounds of each fleet."""


@contextmanager
def listener(own: Fleet) -> Iterator[None]:
    """`celery events` runs, and the worker of `own` sends events as if Flower had asked for them.

    The block ends once those of the last task have arrived.
    """
    log = own.folder / f"{LISTENER}.log"
    log.unlink(missing_ok=True)
    process = own.celery(LISTENER, "events", "--dump", wait=False)
    await_ready(process, lambda: log.exists() and "starting capture" in log.read_text())
    with configured(own.settings) as app:
        assert app.control.broadcast("enable_events", reply=True, timeout=30, limit=1)
        yield
        await_ready(process, lambda: log.read_text().count("task succeeded: job.") >= TASKS)
        app.control.broadcast("disable_events", reply=True, timeout=30, limit=1)
    process.stop(5)


def main() -> None:
    use_two_cores()
    rounds: dict[str, list[Costs]] = {"without": [], "quiet": [], "listened": []}
    with tempfile.TemporaryDirectory() as name, _source.serving(Path(name)) as source, stack() as own:
        where = machine(own)
        apart = {"zk_root": "/without", "broker_prefix": "without:", "home": own.settings.home / "without"}
        other = own.settings.model_copy(update=apart)
        with connect(other) as session, fleet(other, forked=False) as beside:
            servers = own.counted()
            shipped = own.counted(worker=own.fleet.worker("own", PROCESSES), beat=own.fleet.beat())
            plain = servers | {
                "worker": _plain_carrier.worker(beside, PROCESSES).pid,
                "beat": beside.beat().pid,
            }
            work = partial(complete_files, own.session, own.settings, source, Path(name))
            plain_work = partial(complete_files, session, other, source, Path(name))
            for warm_up in (work, plain_work):
                warm_up(max(2 * PROCESSES, WARM_UP * JOBS))

            def measure(side: str) -> None:
                done = partial(measured, own.session, shipped, JOBS, partial(work, JOBS))
                if side == "without":
                    done = partial(measured, session, plain, JOBS, partial(plain_work, JOBS))
                if side != "listened":
                    rounds[side].append(done())
                    return
                with listener(own.fleet):
                    rounds[side].append(done())

            for number in range(ROUNDS):
                for side in list(rounds)[:: -1 if number % 2 else 1]:
                    measure(side)
    cpu = {side: [costs.cpu_ms for costs in measures] for side, measures in rounds.items()}
    quiet, listened = (
        [one / base for one, base in zip(cpu[side], cpu["without"], strict=True)]
        for side in ("quiet", "listened")
    )
    met = median(listened) <= GOAL and median(quiet) <= QUIET_GOAL
    goals = {
        "quiet_ratio": round(median(quiet), 3),
        "quiet_ratio_goal": QUIET_GOAL,
        "quiet_ratio_range": spread(quiet),
    }
    sides = {
        key: value for side, measures in rounds.items() for key, value in figures(side, measures).items()
    }
    report("listening", listened, GOAL, met, {**goals, **sides, **where})


if __name__ == "__main__":
    run(main, __doc__)
