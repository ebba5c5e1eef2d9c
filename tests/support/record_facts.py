"""What the znodes say of every batch and job, read with kazoo and json alone, by the surfaces' names."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kazoo.client import KazooClient


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


def read(zk: KazooClient, path: str) -> Told:
    nodes: dict[str, Any] = {}
    versions: dict[str, int] = {}
    for name in zk.get_children(path):
        data, stat = zk.get(f"{path}/{name}")
        text = data.decode()
        nodes[name] = json.loads(text) if text[:1] in ("{", "[") else text
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
        "name": given["payload_name"],
        "ark": named.get("primary_id"),
        "local_id": named.get("local_id", []),
        "title": described.get("what", given.get("erc_what", "")),
        "what": described.get("what", given.get("erc_what", "")),
        "who": described.get("who", given.get("erc_who", "")),
        "when": described.get("when", given.get("erc_when", "")),
        "state": status["status"],
        "since": status["last_modification_date"],
        "version": job.versions["status"],
        "priority": int(job["priority"]),
        "kind": status.get("kind"),
        "message": status.get("message", ""),
        "last_successful_status": status.get("last_successful_status"),
        "retry_count": status.get("retry_count", 0),
        "tries": status.get("tries", 0),
        "room": status.get("room"),
        "remark": status.get("remark", ""),
        "held": status["status"] == "held",
        "waiting": waits.get("kind", ""),
        "payload_url": given["payload_url"],
        "payload_type": given["payload_type"],
        "working_dir": "" if status["status"] == "completed" else given["working_dir"],
        "space_needed": int(job["space_needed"]),
        "space_promised": job["promised"],
    }


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
    return {
        "bid": bid,
        "collection": submitted["profile_name"],
        "profile": submitted["profile_name"],
        "owner": submitted.get("owner", ""),
        "submitter": submitted.get("submitter", ""),
        "name": submitted.get("payload_filename") or submitted["payload_url"].rpartition("/")[2],
        "payload_url": submitted["payload_url"],
        "payload_type": submitted["type"],
        "submitted_at": submitted["submitted_at"],
        "status": status["status"],
        "since": status["last_modified"],
        "version": batch.versions["status"],
        "message": status.get("message", ""),
        "kind": status.get("kind"),
        "total": status.get("total"),
        "jobs": dict(states),
        "buckets": buckets,
        "failed_jobs": failed,
        "report": report,
        "held": status["status"] == "held",
        "objects": None,
    }


def line_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """A line of a report: what did not fail has no message, and what people ended has the report's words."""
    failed = facts["state"] == "failed"
    stopped = re.match(r"failed by ann@desk: (.*)", facts["message"])
    message = f"our staff stopped this object: {stopped[1]}" if stopped else facts["message"]
    changed = {"message": message if failed else "", "kind": facts["kind"] if failed else None}
    return facts | changed


@dataclass
class Record:
    """The facts of every batch and job, by their ids."""

    batches: dict[str, dict[str, Any]]
    jobs: dict[str, dict[str, Any]]
    histories: dict[str, list[dict[str, Any]]]
    submissions: dict[str, dict[str, Any]]
    reports: dict[str, int]

    @classmethod
    def read(cls, zk: KazooClient) -> "Record":
        of_batches, of_jobs = read_all(zk)
        members: dict[str, dict[str, Told]] = {bid: {} for bid in of_batches}
        for jid, told in of_jobs.items():
            members[told["bid"]][jid] = told
        return cls(
            {bid: batch_facts(bid, told, members[bid]) for bid, told in of_batches.items()},
            {jid: job_facts(jid, told, of_batches[told["bid"]]) for jid, told in of_jobs.items()},
            {name: told["history"] for name, told in (of_jobs | of_batches).items()},
            {bid: told["submission"] for bid, told in of_batches.items()},
            {bid: told["status"].get("reports", 0) for bid, told in of_batches.items()},
        )

    def of(self, bid: str) -> list[str]:
        return sorted(jid for jid, facts in self.jobs.items() if facts["bid"] == bid)
