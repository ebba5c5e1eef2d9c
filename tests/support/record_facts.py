"""What the znodes say of every batch and job, read with kazoo and json alone, by the surfaces' names."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from kazoo.client import KazooClient

from pipeline.settings import Settings


@dataclass
class Told:
    """What the record says of one batch or job: the values of its znodes."""

    nodes: dict[str, Any]
    versions: dict[str, int]

    def __getitem__(self, name: str) -> Any:
        return self.nodes[name]


def same(shown: object, so: object) -> bool:
    return bool(canonical(shown) == canonical(so))


def canonical(value: Any) -> Any:
    """Times as moments; what is empty is one and the same, and left out of a document."""
    if isinstance(value, dict):
        parts = {name: canonical(part) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part not in (None, 0)} or None
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        return datetime.fromisoformat(value)
    if isinstance(value, list | tuple):
        return [canonical(part) for part in value] or None
    return None if value == "" else value


def value_of(data: bytes) -> Any:
    text = data.decode()
    return json.loads(text) if text[:1] in ("{", "[") else text


def read(zk: KazooClient, path: str) -> Told:
    nodes: dict[str, Any] = {}
    versions: dict[str, int] = {}
    for name in zk.get_children(path):
        data, stat = zk.get(f"{path}/{name}")
        nodes[name] = value_of(data)
        versions[name] = stat.version
    return Told(nodes, versions)


def read_all(zk: KazooClient) -> tuple[dict[str, Told], dict[str, Told]]:
    """Batches and jobs by their ids."""
    of_batches = {bid: read(zk, f"/batches/{bid}") for bid in zk.get_children("/batches")}
    for bid, told in of_batches.items():
        path = f"/batches/{bid}/states"
        names = zk.get_children(path) if zk.exists(path) else []
        told.nodes["buckets"] = {name: sorted(zk.get_children(f"{path}/{name}")) for name in names}
    of_jobs = {jid: read(zk, f"/jobs/{jid}") for jid in zk.get_children("/jobs") if jid.startswith("jid")}
    for jid, told in of_jobs.items():
        path = f"/space/working/{jid}"
        told.nodes["promised"] = int(zk.get(path)[0]) if zk.exists(path) else None
    return of_batches, of_jobs


def cause_in(status: Mapping[str, Any]) -> dict[str, Any] | None:
    """The cause of the failure, if it was recorded with this very message."""
    digest = hashlib.sha256(status.get("message", "").encode()).hexdigest()
    is_own = status.get("kind") and digest.startswith(status.get("cause_of") or "none")
    return status["cause"] if is_own else None


def job_facts(jid: str, job: Told, batch: Told) -> dict[str, Any]:
    """Under every name that a surface uses."""
    status, given, named = job["status"], job["configuration"], job["identifiers"]
    described = named.get("description", {})
    waits = status.get("waits_for") or {}
    return {
        "jid": jid,
        "bid": job["bid"],
        "collection": given["profile_name"],
        "profile": given["profile_name"],
        "owner": batch["submission"].get("owner", ""),
        "submitter": given.get("submitter", ""),
        "deposit_name": given.get("deposit_name"),
        "name": given["payload_name"],
        "ark": named.get("primary_id"),
        "local_id": named.get("local_id", []),
        "title": described.get("what", given.get("erc_what", "")),
        "what": described.get("what", given.get("erc_what", "")),
        "who": described.get("who", given.get("erc_who", "")),
        "when": described.get("when", given.get("erc_when", "")),
        "state": status["status"],
        "since": status["last_modification_date"],
        "version": job.versions.get("status"),
        "priority": int(job["priority"]),
        "kind": status.get("kind"),
        "message": status.get("message", ""),
        "failure_cause": cause_in(status),
        "last_successful_status": status.get("last_successful_status"),
        "retry_count": status.get("retry_count", 0),
        "tries": status.get("tries", 0),
        "room": status.get("room"),
        "remark": status.get("remark", ""),
        "checks": [{"overruled": None, "stopping": None, **run} for run in status.get("checks", ())] or None,
        "held": status["status"] == "held",
        "waiting": waits.get("kind", ""),
        "payload_url": given["payload_url"],
        "payload_type": given["payload_type"],
        "working_dir": "" if status["status"] == "completed" else given["working_dir"],
        "space_needed": int(job["space_needed"]),
        "space_promised": job["promised"],
    }


def last_of(url: str) -> str:
    return unquote(urlsplit(url).path.rpartition("/")[2])


def batch_facts(bid: str, batch: Told, members: dict[str, Told]) -> dict[str, Any]:
    submitted, status = batch["submission"], batch["status"]
    report = batch.nodes.get("status-report")
    states = Counter(told["status"]["status"] for told in members.values())
    buckets = {name: len(jids) for name, jids in batch["buckets"].items()}
    if gone := buckets.get("batch-deleted", 0):
        states["deleted"] = gone
    failed = [
        {
            "jid": jid,
            "name": told["configuration"]["payload_name"],
            "kind": told["status"].get("kind"),
            "message": told["status"]["message"],
        }
        for jid, told in sorted(members.items())
        if told["status"]["status"] == "failed"
    ]
    payload = submitted.get("payload_filename") or last_of(submitted["payload_url"])
    return {
        "bid": bid,
        "collection": submitted["profile_name"],
        "profile": submitted["profile_name"],
        "owner": submitted.get("owner", ""),
        "submitter": submitted.get("submitter", ""),
        "deposit_name": submitted.get("deposit_name"),
        "name": submitted.get("deposit_name") or payload,
        "payload_name": payload,
        "payload_url": submitted["payload_url"],
        "payload_type": submitted["type"],
        "submitted_at": submitted["submitted_at"],
        "status": status["status"],
        "since": status["last_modified"],
        "version": batch.versions["status"],
        "message": status.get("message", ""),
        "kind": status.get("kind"),
        "failure_cause": cause_in(status),
        "total": status.get("total"),
        "jobs": dict(states),
        "buckets": buckets,
        "failed_jobs": failed,
        "report": report,
        "sent_at": report and report["last_modified"],
        "ended_at": status["last_modified"] if status["status"] in ("completed", "failed") else None,
        "held": status["status"] == "held",
        "objects": None,
    }


def line_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """A line of a report: what did not fail has no message, and what people ended has the report's words.

    Of what was deleted there is nothing to check.
    """
    failed = facts["state"] == "failed"
    stopped = re.match(r"failed by ann@desk: (.*)", facts["message"])
    message = f"our staff stopped this object: {stopped[1]}" if stopped else facts["message"]
    if facts["state"] == "deleted":
        return facts | {"message": "because", "kind": None, "remark": "", "cause": ""}
    cause = facts["failure_cause"]["code"] if failed and facts["failure_cause"] and not stopped else ""
    return facts | {
        "message": message if failed else "",
        "kind": facts["kind"] if failed else None,
        "cause": cause,
    }


def outage_facts(zk: KazooClient) -> dict[str, dict[str, Any]]:
    """The outages by the service, and which one of several."""
    read = (json.loads(zk.get(f"/outages/{name}")[0]) for name in zk.get_children("/outages"))
    return {":".join(filter(None, (told["service"], told.get("instance")))): told for told in read}


@dataclass(frozen=True)
class Moment:
    """A moment that no znode keeps: between two that the test knows."""

    start: datetime
    end: datetime

    def __eq__(self, other: object) -> bool:
        return isinstance(other, datetime) and self.start <= other <= self.end

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Record:
    """The facts of every batch and job, by their ids."""

    batches: dict[str, dict[str, Any]]
    jobs: dict[str, dict[str, Any]]
    deleted: dict[str, dict[str, Any]]
    """Of jobs that operators deleted, as they were before."""
    histories: dict[str, list[dict[str, Any]]]
    submissions: dict[str, dict[str, Any]]
    reports: dict[str, int]
    outages: dict[str, dict[str, Any]]

    @classmethod
    def now(cls, settings: Settings, deleted: Mapping[str, Mapping[str, bytes]], moment: Moment) -> "Record":
        """As `read`, over a connection of its own."""
        zk = KazooClient(hosts=f"{settings.zk_hosts}{settings.zk_root}")
        zk.start(timeout=20)
        try:
            return cls.read(zk, deleted, moment)
        finally:
            zk.stop()
            zk.close()

    @classmethod
    def read(cls, zk: KazooClient, deleted: Mapping[str, Mapping[str, bytes]], moment: Moment) -> "Record":
        """`deleted`: the znodes of the jobs that were deleted, within this moment."""
        of_batches, of_jobs = read_all(zk)
        gone = {jid: of_deleted(jid, nodes) for jid, nodes in deleted.items()}
        members: dict[str, dict[str, Told]] = {bid: {} for bid in of_batches}
        for jid, told in of_jobs.items():
            members[told["bid"]][jid] = told
        return cls(
            {bid: batch_facts(bid, told, members[bid]) for bid, told in of_batches.items()},
            {jid: job_facts(jid, told, of_batches[told["bid"]]) for jid, told in of_jobs.items()},
            {
                jid: tombstone_facts(job_facts(jid, told, of_batches[told["bid"]]), moment)
                for jid, told in gone.items()
            },
            {name: told["history"] for name, told in (of_jobs | of_batches | gone).items()},
            {bid: told["submission"] for bid, told in of_batches.items()},
            {bid: told["status"].get("reports", 0) for bid, told in of_batches.items()},
            outage_facts(zk),
        )

    def of(self, bid: str) -> list[str]:
        return sorted(jid for jid, facts in self.jobs.items() if facts["bid"] == bid)

    def members(self, bid: str) -> list[str]:
        """With those that were deleted."""
        return sorted(jid for jid, facts in (self.jobs | self.deleted).items() if facts["bid"] == bid)

    def job(self, jid: str) -> dict[str, Any]:
        return self.jobs.get(jid) or self.deleted[jid]

    def alone(self, bids: Collection[str]) -> "Record":
        """Of these batches and their jobs."""
        return replace(
            self,
            batches={bid: facts for bid, facts in self.batches.items() if bid in bids},
            jobs={jid: facts for jid, facts in self.jobs.items() if facts["bid"] in bids},
            deleted={jid: facts for jid, facts in self.deleted.items() if facts["bid"] in bids},
        )

    def after_deletion(self, bids: Collection[str], moment: Moment) -> "Record":
        """These batches were deleted: what is completed stays so, every other job was deleted."""
        so = self.alone(bids)
        gone = {jid: facts for jid, facts in so.jobs.items() if facts["state"] != "completed"}
        for facts in so.batches.values():
            lost = [jid for jid in gone if gone[jid]["bid"] == facts["bid"]]
            left = {
                name: number for name, number in facts["jobs"].items() if name in ("completed", "deleted")
            }
            number = left.get("deleted", 0) + len(lost)
            completed = left.get("completed", 0)
            facts |= {
                "status": "deleted",
                "since": moment,
                "version": None,
                "jobs": {"completed": completed, "deleted": number},
                "buckets": {"batch-completed": completed, "batch-deleted": number},
                "failed_jobs": [],
            }
        tombstones = {jid: tombstone_facts(facts, moment) for jid, facts in gone.items()}
        kept = {jid: facts for jid, facts in so.jobs.items() if jid not in gone}
        return replace(so, jobs=kept, deleted=so.deleted | tombstones)


def of_deleted(jid: str, nodes: Mapping[str, bytes]) -> Told:
    before = f"/jobs/{jid}/"
    named = {
        path.removeprefix(before): value_of(data) for path, data in nodes.items() if path.startswith(before)
    }
    return Told(named | {"promised": None}, {})


def tombstone_facts(facts: dict[str, Any], moment: Moment) -> dict[str, Any]:
    """A job that was deleted has no version and no storage."""
    return facts | {"state": "deleted", "since": moment, "version": None, "working_dir": ""}
