"""What the tests of a minter do with it: jobs, the record of them, and processes that die."""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline.attempt import UNATTENDED, NameAfter
from pipeline.description import anvl
from pipeline.identifiers.minter import Assignment, LastCheck, Minter
from pipeline.outcome import AttemptOver
from pipeline.records import Identifiers, Job, JobConfiguration, JobStatus, PayloadType
from pipeline.states import JobState
from plugins.conformance import deaths
from plugins.conformance.deaths import End
from plugins.conformance.subjects import MinterPlace, Registry

BID = "bid0000000001"
AT = datetime(2026, 9, 1, 12, 0, tzinfo=UTC)
ERC: anvl.Pairs = (("who", "Müller: 100% sure"), ("what", "two\nlines"), ("when", "2009"))


def a_job(number: int) -> Job:
    jid = f"jid{number:010}"
    return Job(
        jid=jid,
        bid=BID,
        configuration=JobConfiguration(
            batch_id=BID,
            profile_name="demo",
            submitter="depositor@example.edu",
            payload_url=f"http://source.example/{number}",
            payload_type=PayloadType.FILE,
            payload_name=str(number),
            working_dir=f"/nowhere/{jid}",
            submitted_at=AT,
            key=f"{number:032x}",
        ),
        identifiers=Identifiers(),
        status=JobStatus(status=JobState.PROCESSING, last_modification_date=AT),
        version=0,
        priority=5,
        space_needed=0,
    )


class MemoryRecord:
    """The identifiers of jobs, and the numbers that were taken, in memory; thread-safe."""

    def __init__(self) -> None:
        self.kept: dict[str, Identifiers] = {}
        """Job id -> its identifiers."""
        self.counters: Counter[str] = Counter()
        self.over: set[str] = set()
        """Jobs whose attempt is over."""
        self._transaction = threading.RLock()

    def of(self, job: Job) -> Identifiers:
        return self.kept.get(job.jid, job.identifiers)

    def write(self, job: Job, identifiers: Identifiers) -> None:
        self.kept[job.jid] = identifiers

    def mint(
        self, job: Job, counter: str, name_after: NameAfter, identifiers: Identifiers | None = None
    ) -> str:
        with self._transaction:
            if job.jid in self.over:
                raise AttemptOver(f"job {job.jid} has another attempt")
            current = self.of(job)
            if current.primary_id is not None:
                return current.primary_id
            self.counters[counter], ark = name_after(self.counters[counter])
            self.write(job, (identifiers or current).model_copy(update={"primary_id": ark}))
            return ark


@dataclass(frozen=True)
class Minting:
    """The minter under test, and the record of the jobs that it mints for."""

    given: MinterPlace
    record: MemoryRecord = field(default_factory=MemoryRecord)

    def mint(self, number: int, minter: Minter | None = None, **other: Any) -> str:
        """Mint for job `number`, by default with a minter that another process would open."""
        return (minter or self.given.open()).mint(a_job(number), self.given.profile, self.record, **other)

    def announce(
        self,
        ark: str,
        number: int,
        minter: Minter | None = None,
        last_check: LastCheck = UNATTENDED.check,
    ) -> None:
        """Announce the ARK for job `number`, the first that is stored under it."""
        assigned = Assignment(a_job(number), lambda: True)
        (minter or self.given.open()).announce(ark, self.given.profile, ERC, assigned, last_check)

    def ark_of(self, number: int) -> str | None:
        """What the record has."""
        return self.record.of(a_job(number)).primary_id

    @property
    def registry(self) -> Registry:
        """Skips the test if there is none."""
        if self.given.registry is None:
            pytest.skip("the minter has no registry")
        return self.given.registry

    def dies_before(self, number: int, effect: int) -> End:
        """Mint and announce in a process that dies before this effect; the record has what it wrote."""
        reads, writes = os.pipe()

        def deed() -> Callable[[], object]:
            minting = Minting(self.given, _Reporting(self.record, writes))
            minter = self.given.open()
            return lambda: minting.announce(minting.mint(number, minter), number, minter)

        try:
            end = deaths.before_effect(deed, effect)
        finally:
            os.close(writes)
        with os.fdopen(reads) as reported:
            for line in reported:
                self._take(json.loads(line))
        return end

    def _take(self, reported: dict[str, Any]) -> None:
        self.record.kept[reported["jid"]] = Identifiers.model_validate(reported["identifiers"])
        self.record.counters = Counter(reported["counters"])


class _Reporting(MemoryRecord):
    """The record of another process, which reports what it writes to this one."""

    def __init__(self, before: MemoryRecord, to: int) -> None:
        super().__init__()
        self.kept, self.counters, self._to = dict(before.kept), before.counters.copy(), to

    def write(self, job: Job, identifiers: Identifiers) -> None:
        super().write(job, identifiers)
        written = {
            "jid": job.jid,
            "identifiers": identifiers.model_dump(mode="json"),
            "counters": self.counters,
        }
        os.write(self._to, f"{json.dumps(written)}\n".encode())
