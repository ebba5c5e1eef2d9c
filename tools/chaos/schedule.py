"""The schedule of faults; a seed always gives the same schedule."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

QUIET_START = 4.0
"""Seconds without faults at the start, so that there is work to disturb."""


class Kind(Enum):
    """A kind of fault or operator's act: its name, its weight, and how many seconds it lasts.

    A zombie is frozen for longer than the shipped session timeout (20 s); an outage outlasts the first
    retries of a step (75 s); PostgreSQL hangs for less and for longer than a statement's
    timeout (60 s).
    """

    KILL_CHILD = ("kill-pool-process", 6, 0, 0)
    OUT_OF_MEMORY = ("child-killed-for-its-memory", 4, 0, 0)
    KILL_WORKER = ("kill-worker", 5, 0, 0)
    KILL_BEAT = ("kill-beat-leader", 3, 0, 0)
    KILL_SPLIT = ("kill-while-splitting", 3, 0, 0)
    KILL_REPORT = ("kill-while-reporting", 3, 0, 0)
    KILL_UPDATE = ("kill-while-update-reporting", 2, 0, 0)
    TERM_DOWNLOADING = ("sigterm-while-downloading", 3, 3, 40)
    TERM_STORING = ("sigterm-while-storing", 3, 3, 40)
    ROLLING_RESTART = ("rolling-restart", 2, 0, 0)
    ZOMBIE_CHILD = ("freeze-pool-process", 5, 22, 30)
    ZOMBIE_WORKER = ("freeze-worker", 3, 22, 30)
    ZOMBIE_SPLIT = ("freeze-while-splitting", 3, 22, 30)
    ZOMBIE_REPORT = ("freeze-while-reporting", 3, 22, 30)
    ZOMBIE_UPDATE = ("freeze-while-update-reporting", 2, 22, 30)
    STALLED_CONSUMER = ("freeze-consumer", 2, 6, 30)
    REDIS_KILLED = ("kill-redis", 3, 1, 4)
    REDIS_FROZEN = ("freeze-redis", 3, 3, 8)
    REDIS_EMPTY = ("restart-redis-empty", 3, 0, 2)
    REDIS_FLUSHED = ("flush-redis", 4, 0, 0)
    FOREIGN_MESSAGE = ("foreign-message-in-redis", 4, 0, 0)
    ZK_KILLED = ("kill-zookeeper-follower", 3, 1, 4)
    ZK_LEADER_KILLED = ("kill-zookeeper-leader", 3, 1, 4)
    ZK_FOLLOWER_FROZEN = ("freeze-zookeeper-follower", 3, 4, 20)
    ZK_LEADER_FROZEN = ("freeze-zookeeper-leader", 2, 4, 20)
    ZK_RESTARTED = ("kill-all-zookeepers", 1, 0, 1)
    ZK_CLOCK = ("set-zookeeper-leader-clock", 2, 20, 60)
    ZK_OLDER = ("zookeeper-restored-from-older-copy", 1, 25, 40)
    ANSWERS_SWALLOWED = ("swallow-zookeeper-answers", 6, 0, 2)
    WORKER_CUT_OFF = ("cut-worker-off-zookeeper", 4, 2, 30)
    WORKING_FULL = ("working-storage-full", 3, 2, 6)
    STORAGE_FULL = ("storage-root-full", 2, 2, 6)
    STORAGE_READ_ONLY = ("storage-root-read-only", 1, 80, 110)
    STORAGE_MISSING = ("storage-root-not-mounted", 1, 80, 110)
    WORKING_MISSING = ("working-storage-not-mounted", 1, 80, 110)
    WORKING_LOST = ("working-storage-lost", 2, 0, 0)
    INVENTORY_LOCKED = ("inventory-locked", 3, 2, 8)
    INVENTORY_OUTAGE = ("inventory-outage", 1, 80, 110)
    SOURCE_DOWN = ("source-refuses", 2, 2, 6)
    SOURCE_HANGS = ("source-hangs", 2, 2, 6)
    SOURCE_BUSY = ("source-answers-503-429", 2, 2, 6)
    SOURCE_CHANGED = ("content-changes-length", 2, 0, 0)
    HOST_DEAD = ("host-dead", 1, 80, 110)
    HOST_BUSY = ("host-answers-503", 1, 80, 110)
    HOST_SLOW = ("host-one-byte-per-25-s", 1, 80, 110)
    EZID_DOWN = ("ezid-down", 3, 3, 10)
    EZID_OUTAGE = ("ezid-outage", 1, 80, 110)
    MAIL_DOWN = ("mail-server-down", 3, 3, 10)
    MAIL_OUTAGE = ("mail-server-outage", 1, 80, 110)
    CALLBACK_DOWN = ("callback-receiver-down", 3, 3, 10)
    CALLBACK_OUTAGE = ("callback-receiver-outage", 1, 80, 110)
    CLAMD_KILLED = ("kill-clamd", 5, 1, 8)
    CLAMD_FROZEN = ("freeze-clamd", 3, 3, 20)
    CLAMD_RESTARTED = ("restart-clamd", 3, 0, 0)
    CLAMD_OUTAGE = ("clamd-outage", 1, 80, 110)
    HOSTILE_SOURCE = ("deposit-from-hostile-source", 3, 20, 40)
    OVERSIZED = ("oversized-deposit", 2, 10, 30)
    STORED_AND_KILLED = ("stored-job-loses-worker-content-and-source", 4, 0, 0)
    STORED_AND_CANCELLED = ("stored-job-is-cancelled-and-loses-content-and-source", 3, 22, 30)
    SECOND_SWEEP = ("two-sweeps-two-feeders", 4, 0, 0)
    HOLD_COLLECTION = ("operator-holds-collection", 2, 2, 8)
    HOLD_JOB = ("operator-holds-job", 3, 2, 8)
    PAUSE = ("operator-pauses-queue", 2, 2, 8)
    FAIL_JOB = ("operator-fails-job", 4, 0, 0)
    RESUME_JOBS = ("operator-resumes-jobs", 4, 0, 0)
    RESUME_FROM = ("operator-resumes-job-from-earlier-step", 3, 0, 0)
    DELETE_JOB = ("operator-deletes-job", 2, 0, 0)
    DELETE_BATCH = ("operator-deletes-batch", 1, 0, 0)
    CANCEL_BATCH = ("operator-cancels-batch", 1, 0, 0)
    UPDATE_REPORT = ("operator-updates-report", 3, 0, 0)
    BACK_UP = ("operator-backs-up", 2, 0, 0)
    RECONCILE = ("operator-reconciles", 2, 0, 0)
    EXPORT = ("operator-exports-object", 2, 0, 0)
    CHECK_FIXITY = ("operator-checks-fixity", 2, 0, 0)
    POWER_LOST = ("host-loses-power", 6, 3, 20)
    CUT_OFF_ZOOKEEPER = ("host-cut-off-zookeeper", 2, 5, 35)
    CUT_OFF_REDIS = ("host-cut-off-redis", 2, 5, 35)
    CUT_OFF_STORAGE = ("host-cut-off-storage", 2, 5, 35)
    CUT_OFF_BOTH = ("host-cut-off-zookeeper-redis", 2, 5, 35)
    CUT_OFF_RECORD_AND_STORAGE = ("host-cut-off-zookeeper-storage", 2, 5, 35)
    CUT_OFF_QUEUE_AND_STORAGE = ("host-cut-off-redis-storage", 2, 5, 35)
    CUT_OFF_ALL = ("host-cut-off-zookeeper-redis-storage", 3, 5, 35)
    NOT_HEARD = ("host-is-not-heard", 3, 5, 35)
    HEARS_NOTHING = ("host-hears-nothing", 3, 5, 35)
    FAR_AWAY = ("host-200-ms-away", 3, 10, 30)
    PACKETS_LOST = ("host-loses-packets", 2, 5, 20)
    DISK_SLOW = ("host-slow-storage", 3, 10, 30)
    DISK_FAILS = ("host-storage-fails", 2, 2, 10)
    CLOCK_DRIFTS = ("host-clock-drifts", 3, 40, 60)
    POSTGRESQL_KILLED = ("kill-postgresql", 3, 1, 8)
    POSTGRESQL_FROZEN = ("freeze-postgresql", 3, 10, 100)

    def __init__(self, label: str, weight: int, shortest: float, longest: float) -> None:
        self.label = label
        self.weight = weight
        self.shortest = shortest
        self.longest = longest


NEEDS_MOUNTS = frozenset(
    {
        *(Kind.WORKING_FULL, Kind.STORAGE_FULL),
        *(Kind.STORAGE_READ_ONLY, Kind.STORAGE_MISSING, Kind.WORKING_MISSING),
    }
)
OF_HOSTS = frozenset(
    {
        *(Kind.POWER_LOST, Kind.CUT_OFF_ZOOKEEPER, Kind.CUT_OFF_REDIS, Kind.CUT_OFF_STORAGE),
        *(Kind.CUT_OFF_BOTH, Kind.CUT_OFF_RECORD_AND_STORAGE, Kind.CUT_OFF_QUEUE_AND_STORAGE),
        *(Kind.CUT_OFF_ALL, Kind.NOT_HEARD, Kind.HEARS_NOTHING, Kind.FAR_AWAY, Kind.PACKETS_LOST),
        *(Kind.DISK_SLOW, Kind.DISK_FAILS, Kind.CLOCK_DRIFTS),
        *(Kind.POSTGRESQL_KILLED, Kind.POSTGRESQL_FROZEN),
    }
)
"""Faults of hosts and of their PostgreSQL, for runs with several."""

NOT_WITH_HOSTS = NEEDS_MOUNTS - {Kind.WORKING_FULL, Kind.STORAGE_FULL} | {
    *(Kind.ZK_OLDER, Kind.ZK_CLOCK, Kind.ANSWERS_SWALLOWED, Kind.WORKER_CUT_OFF),
    *(Kind.REDIS_EMPTY, Kind.INVENTORY_LOCKED, Kind.INVENTORY_OUTAGE),
}
"""Faults of this machine's folders, of SQLite and of proxies on loopback; hosts have faults of their own."""

NEEDS_FAKETIME = frozenset({Kind.ZK_CLOCK})
NEEDS_CLAMD = frozenset({Kind.CLAMD_KILLED, Kind.CLAMD_FROZEN, Kind.CLAMD_RESTARTED, Kind.CLAMD_OUTAGE})
OF_ONE_HOST = frozenset({Kind.HOST_DEAD, Kind.HOST_BUSY, Kind.HOST_SLOW})
"""Outages of one of the two content hosts: deposits from the other continue."""


BAD_DEPOSITS = frozenset({Kind.HOSTILE_SOURCE, Kind.OVERSIZED})
"""Deposits that may delay no other deposit."""

MACHINERY = frozenset(
    {
        *(Kind.OUT_OF_MEMORY, Kind.STORED_AND_KILLED, Kind.STORED_AND_CANCELLED),
        *(Kind.KILL_CHILD, Kind.KILL_WORKER, Kind.KILL_BEAT, Kind.TERM_DOWNLOADING, Kind.TERM_STORING),
        *(Kind.KILL_SPLIT, Kind.KILL_REPORT, Kind.KILL_UPDATE, Kind.ROLLING_RESTART),
        *(Kind.ZOMBIE_SPLIT, Kind.ZOMBIE_REPORT, Kind.ZOMBIE_UPDATE, Kind.FOREIGN_MESSAGE, Kind.ZK_CLOCK),
        *(Kind.ZOMBIE_CHILD, Kind.ZOMBIE_WORKER, Kind.STALLED_CONSUMER, Kind.WORKER_CUT_OFF),
        *(Kind.REDIS_KILLED, Kind.REDIS_FROZEN, Kind.REDIS_EMPTY, Kind.REDIS_FLUSHED),
        *(Kind.ZK_KILLED, Kind.ZK_LEADER_KILLED, Kind.ZK_FOLLOWER_FROZEN, Kind.ZK_LEADER_FROZEN),
        *(Kind.ZK_RESTARTED, Kind.ANSWERS_SWALLOWED),
        *OF_HOSTS,
    }
)
"""Faults of the machinery that finds and acquires the jobs of a dead worker."""


@dataclass(frozen=True)
class Fault:
    at: float
    """Seconds after the schedule began."""
    kind: Kind
    target: int
    """The index of the target among the candidates, modulo their number."""
    seconds: float


def draw(seed: int, count: int, length: float, kinds: Collection[Kind] = tuple(Kind)) -> tuple[Fault, ...]:
    """`count` faults within `length` seconds; every kind once, if there is room, and the rest by weight.

    Kinds that may outlast the run are skipped.
    """
    chance = random.Random(f"faults {seed}")
    possible = [kind for kind in Kind if kind in kinds and kind.longest <= length]
    chosen = chance.sample(possible, min(count, len(possible)))
    chosen += chance.choices(possible, [kind.weight for kind in possible], k=count - len(chosen))
    chance.shuffle(chosen)
    moments = sorted(chance.uniform(QUIET_START, max(QUIET_START, length)) for _ in chosen)
    return tuple(
        Fault(
            at=round(at, 2),
            kind=kind,
            target=chance.randrange(1000),
            seconds=round(chance.uniform(kind.shortest, kind.longest), 2),
        )
        for at, kind in zip(moments, chosen, strict=True)
    )
