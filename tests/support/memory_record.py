"""A record in memory that fulfils the contract of `pipeline.attempt.JobRecord`.

For tests without ZooKeeper: of the steps, and of a site's own minter.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pipeline.attempt import NameAfter
from pipeline.outcome import AttemptOver, Promised, transient
from pipeline.records import Identifiers, Job


class MemoryJobRecord:
    """Writes are fenced as in ZooKeeper: by the version of the job's status that the attempt holds."""

    def __init__(self, wait: float = 10) -> None:
        self.wait = wait
        """Seconds that `exclusive` waits at most."""
        self.kept: dict[str, Identifiers] = {}
        self.writes: list[tuple[str, Identifiers]] = []
        self.counters: Counter[str] = Counter()
        self.owner: dict[str, int] = {}
        """Job id -> the status version that may write; every attempt may write any other job."""
        self.agreed: dict[str, int] = {}
        """ARK -> version that was current when depositors agreed to the next one."""
        self.held: set[str] = set()
        self.space = Promised(bytes=0, version=0)
        self.reserved: dict[str, int] = {}
        self.reservations_made: list[int] = []
        """What jobs in progress reserved, in order."""
        self.marked = False
        self.busy: set[tuple[str, str]] = set()
        self.taken: list[tuple[str, str]] = []
        """The kind and name of each lock that was taken, in order."""
        self._transaction = threading.RLock()
        self._locks: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)

    def identifiers(self, job: Job) -> Identifiers:
        with self._transaction:
            return self.kept.get(job.jid, job.identifiers)

    def write_identifiers(self, job: Job, identifiers: Identifiers) -> None:
        with self._transaction:
            self._fence(job)
            self.kept[job.jid] = identifiers
            self.writes.append((job.jid, identifiers))

    def mint(
        self, job: Job, counter: str, name_after: NameAfter, identifiers: Identifiers | None = None
    ) -> str:
        with self._transaction:
            self._fence(job)
            current = self.identifiers(job)
            if current.primary_id is not None:
                return current.primary_id
            self.counters[counter], ark = name_after(self.counters[counter])
            self.write_identifiers(job, (identifiers or current).model_copy(update={"primary_id": ark}))
            return ark

    def forget(self, job: Job) -> None:
        """As if the record were restored to a moment before the job was processed."""
        self.kept.pop(job.jid, None)
        self.counters.clear()

    @contextmanager
    def exclusive(self, kind: str, name: str) -> Iterator[None]:
        with self._transaction:
            lock = self._locks[kind, name]
        if not lock.acquire(timeout=self.wait):
            raise transient(f"{kind} {name} is in use by another job")
        self.busy.add((kind, name))
        self.taken.append((kind, name))
        try:
            yield
        finally:
            self.busy.remove((kind, name))
            lock.release()

    def fence(self, job: Job) -> None:
        with self._transaction:
            self._fence(job)

    def agreed_versions(self, job: Job) -> Mapping[str, int]:
        del job
        return self.agreed

    def collection_held(self, profile_name: str) -> bool:
        return profile_name in self.held

    def promised(self) -> Promised:
        return self.space

    def reserve(self, job: Job, needed: int, counted: Promised) -> bool:
        with self._transaction:
            self._fence(job)
            if counted != self.space:
                return False
            self.reserved[job.jid] = needed
            self.space = Promised(bytes=sum(self.reserved.values()), version=counted.version + 1)
            self.reservations_made.append(needed)
            return True

    @property
    def working_storage(self) -> "MemoryJobRecord":
        return self

    def was_marked(self) -> bool:
        return self.marked

    def note_marked(self) -> None:
        self.marked = True

    def reservations(self) -> Mapping[str, int]:
        return self.reserved

    def _fence(self, job: Job) -> None:
        if self.owner.get(job.jid, job.version) != job.version:
            raise AttemptOver(f"job {job.jid} has another attempt")
