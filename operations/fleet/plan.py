"""How many workers a backlog and a deadline need, at the rate that this site has measured.

The rate is that of the batches in progress, each by its time left: what was stored of it within the last
hour. More processes are taken to do proportionally more; a source, a disk or a database at its limit is not.
"""

import math

from operations.board.board import Board
from operations.board.throughput import Throughput, times_left
from operations.board.values import EVERYTHING, BatchSearch
from operations.fleet.fleet import Fleet
from operations.site import Site
from operations.visibility import require_fleet
from pipeline.errors import Documented
from pipeline.machine import Queue
from pipeline.principal import Principal
from pipeline.records import Record
from pipeline.states import JOB, BatchState

MEASURED = 20
"""Objects that have to be stored within an hour before the rate is known."""

BATCHES = 500
"""Maximum batches in progress, the newest first, whose rates are added."""


class PlanGap(Documented):
    """Why the number of workers is not known."""

    PAUSED = "paused", "the queue is paused"
    FEW = "few", f"fewer than {MEASURED} objects of batches in progress are known to be stored this hour"
    NO_WORKER = "no-worker", "no worker for jobs answers"


class FleetPlan(Record):
    """The workers that the backlog needs."""

    jobs: int
    """Jobs in working states, and those expected."""
    expected: int = 0
    """Jobs that the caller expects besides those in the record."""
    within: float
    """Seconds until the last of them should have ended."""
    measured: int
    """Objects, stored within the last hour, that the rate was measured by."""
    per_hour: float | None = None
    """Jobs that the present fleet ends in an hour; null if that is not known, as in what follows."""
    seconds_left: float | None = None
    """Until the present fleet has ended them."""
    workers: int = 0
    """Workers for jobs that answer now."""
    processes: int = 0
    """Processes of these workers."""
    workers_needed: int | None = None
    """Of as many processes each as the present workers."""
    processes_needed: int | None = None
    in_flight: int
    """Maximum jobs in progress (ARKLINE_IN_FLIGHT): further processes would have no job."""
    unknown: PlanGap | None = None
    """Why the number of workers is not known; null if it is."""


def plan(
    site: Site,
    principal: Principal,
    board: Board,
    reading: Throughput | None,
    within: float,
    expected: int = 0,
) -> FleetPlan:
    """Compare the backlog with the deadline; `within`: seconds. Asks the workers, and no job is read."""
    require_fleet(principal, "plan the fleet")
    counts = board.counts(EVERYTHING)
    left = sum(counts[state] for state in JOB.working()) + expected
    measured, rate = _rate(site, board, reading)
    consumers = [one for one in Fleet(site).workers if {Queue.DOWNLOAD, Queue.PROCESS} & set(one.queues)]
    known = FleetPlan(
        jobs=left,
        expected=expected,
        within=within,
        measured=measured,
        workers=len(consumers),
        processes=sum(one.processes for one in consumers),
        in_flight=site.settings.in_flight,
    )
    if not left:
        nothing = {"seconds_left": 0.0, "workers_needed": 0, "processes_needed": 0}
        return known.model_copy(update=nothing)
    if "" in board.stopped():
        return known.model_copy(update={"unknown": PlanGap.PAUSED})
    if measured < MEASURED:
        return known.model_copy(update={"unknown": PlanGap.FEW})
    if not known.processes:
        return known.model_copy(update={"unknown": PlanGap.NO_WORKER})
    return _needed(known, rate)


def _needed(known: FleetPlan, rate: float) -> FleetPlan:
    seconds = known.jobs / rate
    processes = math.ceil(round(known.processes * seconds / known.within, 6))
    return known.model_copy(
        update={
            "per_hour": round(rate * 3600, 1),
            "seconds_left": round(seconds, 1),
            "processes_needed": processes,
            "workers_needed": math.ceil(processes * known.workers / known.processes),
        }
    )


def _rate(site: Site, board: Board, reading: Throughput | None) -> tuple[int, float]:
    """The objects measured, and the jobs a second of all batches in progress."""
    rows = board.batches(EVERYTHING, BatchSearch(status=BatchState.PROCESSING), BATCHES).rows
    left = times_left(reading, site.session, board.stopped(), rows)
    measured, rate = 0, 0.0
    for row in rows:
        if reading is not None and (seconds := left.get(row.bid)):
            ended = sum(number for state, number in row.jobs.items() if JOB.facts[state].ended)
            measured += reading.batches[row.bid].number
            rate += ((row.total or 0) - ended) / seconds
    return measured, rate
