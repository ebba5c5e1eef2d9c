"""The memory of ZooKeeper, which holds the whole record, and the number of jobs that still fit."""

from operations.site import Site
from pipeline.record_budget import accepted_jobs
from zkstate import listings, server_memory
from zkstate.server_memory import ServerMemory


class RecordMemory(ServerMemory):
    """What is in ZooKeeper's memory, and how many jobs may be."""

    jobs: int
    """Ended ones included."""
    accepted_jobs: int
    """Jobs from which on nothing is submitted or split; 0: no limit."""

    @property
    def full(self) -> bool:
        return 0 < self.accepted_jobs <= self.jobs


def record_memory(site: Site) -> RecordMemory:
    memory = server_memory.read(site.session)
    return RecordMemory(
        **dict(memory),
        jobs=listings.recorded(site.session),
        accepted_jobs=accepted_jobs(site.settings, memory.heap_bytes),
    )
