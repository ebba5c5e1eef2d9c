"""The schedule of faults; a seed always gives the same schedule."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

QUIET_START = 4.0
"""Seconds at the beginning without a fault, so that there is work to be disturbed."""


class Kind(Enum):
    """A kind of fault: its name, how often it is drawn, and how many seconds it lasts."""

    KILL_CHILD = ("kill-pool-process", 8, 0, 0)
    KILL_WORKER = ("kill-worker", 8, 0, 0)
    KILL_BEAT = ("kill-beat-leader", 4, 0, 0)
    TERM_DOWNLOADING = ("sigterm-while-downloading", 3, 3, 12)
    TERM_STORING = ("sigterm-while-storing", 3, 3, 12)
    ZOMBIE_CHILD = ("freeze-pool-process", 8, 7, 12)
    ZOMBIE_WORKER = ("freeze-worker", 4, 7, 12)
    STALLED_CONSUMER = ("freeze-consumer", 3, 6, 12)
    REDIS_KILLED = ("kill-redis", 4, 1, 4)
    REDIS_FROZEN = ("freeze-redis", 3, 3, 8)
    REDIS_EMPTY = ("restart-redis-empty", 3, 0, 2)
    REDIS_FLUSHED = ("flush-redis", 5, 0, 0)
    ZK_KILLED = ("kill-zookeeper-follower", 3, 1, 4)
    ZK_LEADER_KILLED = ("kill-zookeeper-leader", 4, 1, 4)
    ZK_FOLLOWER_FROZEN = ("freeze-zookeeper-follower", 3, 4, 9)
    ZK_LEADER_FROZEN = ("freeze-zookeeper-leader", 2, 4, 9)
    ZK_RESTARTED = ("kill-all-zookeepers", 1, 0, 1)
    ANSWERS_SWALLOWED = ("swallow-zookeeper-answers", 8, 0, 2)
    WORKER_CUT_OFF = ("cut-worker-off-zookeeper", 4, 2, 10)
    WORKING_FULL = ("working-storage-full", 4, 2, 6)
    STORAGE_FULL = ("storage-root-full", 3, 2, 6)
    INVENTORY_LOCKED = ("inventory-locked", 4, 2, 8)
    SOURCE_DOWN = ("source-refuses", 3, 2, 6)
    SOURCE_HANGS = ("source-hangs", 3, 2, 6)
    SOURCE_BUSY = ("source-answers-503-429", 3, 2, 6)
    SOURCE_CHANGED = ("content-changes-length", 3, 0, 0)
    MAIL_DOWN = ("mail-server-down", 3, 3, 10)
    CALLBACK_DOWN = ("callback-receiver-down", 3, 3, 10)
    SECOND_SWEEP = ("two-sweeps-two-feeders", 6, 0, 0)

    def __init__(self, label: str, weight: int, shortest: float, longest: float) -> None:
        self.label = label
        self.weight = weight
        self.shortest = shortest
        self.longest = longest


NEEDS_SMALL_DISKS = frozenset({Kind.WORKING_FULL, Kind.STORAGE_FULL})


MACHINERY = frozenset(
    {
        *(Kind.KILL_CHILD, Kind.KILL_WORKER, Kind.KILL_BEAT, Kind.TERM_DOWNLOADING, Kind.TERM_STORING),
        *(Kind.ZOMBIE_CHILD, Kind.ZOMBIE_WORKER, Kind.STALLED_CONSUMER, Kind.WORKER_CUT_OFF),
        *(Kind.REDIS_KILLED, Kind.REDIS_FROZEN, Kind.REDIS_EMPTY, Kind.REDIS_FLUSHED),
        *(Kind.ZK_KILLED, Kind.ZK_LEADER_KILLED, Kind.ZK_FOLLOWER_FROZEN, Kind.ZK_LEADER_FROZEN),
        *(Kind.ZK_RESTARTED, Kind.ANSWERS_SWALLOWED),
    }
)
"""Faults of what finds and takes up the jobs of a dead worker."""


@dataclass(frozen=True)
class Fault:
    at: float
    """Seconds after the schedule began."""
    kind: Kind
    target: int
    """Which of the candidates, counted modulo their number."""
    seconds: float


def draw(seed: int, count: int, length: float, kinds: Collection[Kind] = tuple(Kind)) -> tuple[Fault, ...]:
    """`count` faults within `length` seconds; every kind once, if there is room, and the rest by weight."""
    chance = random.Random(f"faults {seed}")
    possible = [kind for kind in Kind if kind in kinds]
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
