"""What `arkline why` and `arkline status` print for people, beside what the record says."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.working_storage.capacity import in_units
from tests.support import command_texts
from tests.support.command_texts import Spent
from tests.support.record_facts import Moment, Record

Pair = tuple[str, dict[str, Any], dict[str, Any]]
"""What is described, what is printed of it, and what the record says."""


@dataclass(frozen=True)
class Asked:
    """Answers that were given between two moments."""

    so: Record
    began: datetime
    ended: datetime

    def facts(self, command: tuple[str, ...], text: str) -> Iterator[Pair]:
        match command:
            case ("why", name):
                return self._why(name, text)
            case ("status", name):
                return self._status(name, text)
            case _:
                return self._fleet(text)

    def _spent(self, since: str | Moment) -> Spent:
        return Spent(
            since if isinstance(since, Moment) else datetime.fromisoformat(since), self.began, self.ended
        )

    def _why(self, name: str, text: str) -> Iterator[Pair]:
        about, *examples = command_texts.why(text)
        assert about["id"] == name, text
        for given in (about, *examples):
            so = self._of_job(given["id"]) if given["id"].startswith("jid") else self._of_batch(given["id"])
            yield ("a job" if "failed_in" in so else "a batch"), given, so
        assert all(self.so.job(example["id"])["bid"] == name for example in examples), text

    def _of_job(self, jid: str) -> dict[str, Any]:
        facts, entries = self.so.job(jid), self.so.histories[jid]
        ends = ("fail", "reject")
        failed = max((n for n, entry in enumerate(entries) if entry.get("event") in ends), default=0)
        space = {name: facts[name] and in_units(facts[name]) for name in ("space_needed", "space_promised")}
        times = facts["retry_count"]
        return {
            **facts,
            **space,
            "id": jid,
            "spent": self._spent(facts["since"]),
            "since": local(facts["since"]),
            "spent_since": self._spent(facts["since"]),
            "failed_in": entries[failed - 1]["state"] if failed else None,
            "next_try": str(facts["tries"] + 1),
            "local_id": "; ".join(facts["local_id"]),
            "payload": f"{facts['payload_url']} ({facts['payload_type'].replace('_', '-')})",
            "priority": f"{facts['priority']:02d}",
            "retry_count": f"{times} time{'' if times == 1 else 's'}" if times else None,
        }

    def _of_batch(self, bid: str) -> dict[str, Any]:
        facts = self.so.batches[bid]
        report = facts["report"] or {}
        told = {
            "completed": len(report.get("successful_jobs", ())),
            "failed": len(report.get("failed_jobs", ())),
        }
        return {
            **facts,
            "id": bid,
            "state": facts["status"],
            "spent": self._spent(facts["since"]),
            "since": local(facts["since"]),
            "spent_since": self._spent(facts["since"]),
            "submitted_at": local(facts["submitted_at"]),
            "spent_submitted_at": self._spent(facts["submitted_at"]),
            "sent_at": report and local(report["last_modified"]),
            "spent_sent_at": report and self._spent(report["last_modified"]),
            "told": told,
            "total": str(facts["total"]),
            "payload": f"{facts['payload_url']} ({facts['payload_type'].replace('_', '-')})",
            "kinds": dict(Counter(job["kind"] for job in facts["failed_jobs"])),
        }

    def _status(self, name: str, text: str) -> Iterator[Pair]:
        given, failed = command_texts.status(text)
        assert given["id"] == name, text
        if name.startswith("jid"):
            yield "a job", given, self._of_job(name)
            return
        so = self._of_batch(name)
        yield "a batch", given, so
        shown = [dict(zip(("jid", "kind", "name", "message"), row, strict=True)) for row in failed]
        yield "failed jobs", {"failed_jobs": shown}, so

    def _fleet(self, text: str) -> Iterator[Pair]:
        given, rows = command_texts.fleet(text)
        (outage,) = (told for told in self.so.outages.values() if not told.get("ended"))
        statuses = Counter(facts["status"] for facts in self.so.batches.values())
        states = Counter(facts["state"] for facts in self.so.jobs.values())
        unfinished = sum(statuses.values()) - statuses["completed"] - statuses["failed"]
        so = {
            "jobs": {state: number for state, number in states.items() if state != "completed"},
            "batches": {"unfinished": unfinished, "in": len(self.so.batches)},
            "recorded": str(len(self.so.jobs)),
            "service": f"{outage['service']}:{outage['instance']}",
            "spent": self._spent(outage["since"]),
            "message": outage["message"],
        }
        yield "the whole", given, so
        for row in rows:
            names = ("bid", "status", "spent", "total", "collection", "name")
            yield "a batch", dict(zip(names, row, strict=True)), self._of_batch(row[0])


@dataclass(frozen=True)
class Printed:
    """A moment as people read it, to the second; it lies between two that the test knows."""

    first: str
    last: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.first <= other <= self.last

    __hash__ = None  # type: ignore[assignment]


def local(moment: str | Moment) -> Printed:
    """In the reader's time zone."""
    if isinstance(moment, Moment):
        return Printed(_local(moment.start), _local(moment.end))
    return Printed(*[_local(datetime.fromisoformat(moment))] * 2)


def _local(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
