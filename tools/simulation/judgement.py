"""What must hold once a history is over: read from the tree, the files and the services, beside its facts."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha512
from pathlib import Path
from typing import Any

from pipeline.states import BATCH, JOB, BatchState, FailureKind, JobState
from tools.simulation.ensemble import Tree
from tools.simulation.invariants import SPACE
from tools.simulation.outside import Outside
from tools.simulation.people import Operator

_IDENTIFIERS = re.compile("/jobs/jid[^/]+/identifiers")


@dataclass
class Ended:
    """A history that is over."""

    tree: Tree
    home: Path
    operator: Operator
    outside: Outside
    faults_of: Mapping[str, list[float]]
    """Process -> when it had a fault; empty: all processes."""

    def __post_init__(self) -> None:
        self.plan, self.facts, self.depositor = (
            self.operator.plan,
            self.operator.facts,
            self.operator.depositor,
        )

    def judge(self) -> Iterator[str]:
        yield from self._named()
        yield from self._jobs()
        yield from self._storage()
        yield from self._services()
        for jid in self.tree.nodes[SPACE].children:
            if self.facts.jobs[jid]["status"] != JobState.FAILED:
                yield f"space: {SPACE}/{jid} is left, although nothing needs space"

    def _named(self) -> Iterator[str]:
        """An ARK names one object, and a local id has one ARK; each job of a history has one local id."""
        nodes = (node for path, node in self.tree.nodes.items() if _IDENTIFIERS.fullmatch(path))
        given = [json.loads(node.data) for node in nodes]
        pairs = {(one.get("primary_id"), name) for one in given for name in one.get("local_id", ())}
        for position, what in enumerate(("ark", "local id")):
            times = Counter(pair[position] for pair in pairs if pair[0])
            yield from (
                f"ark: the {what} {name} is given {times[name]} times" for name in times if times[name] > 1
            )

    def _may_end(self, jid: str) -> bool:
        """Whether a person ended the job, or its batch."""
        return bool({jid, self.facts.bids[jid]} & self.operator.ended.keys())

    def _jobs(self) -> Iterator[str]:
        """Each deposited object has a job that completed, unless it was refused or ended by a person."""
        facts, flaws = self.facts, self.depositor.flaws
        done, excused = set[str](), set[str]()
        for jid, status in facts.jobs.items():
            name, state = facts.names[jid], status["status"]
            if state == JobState.COMPLETED:
                done.add(name)
            elif (state == JobState.DELETED and self._may_end(jid)) or (
                state == JobState.FAILED
                and status.get("kind") == FailureKind.CONTENT
                and (name in flaws or self._may_end(jid))
            ):
                excused.add(name)
            else:
                yield f"ended: {jid} ({name}) is {state}: {status.get('message')}"
        # a manifest that cannot be fetched in a few tries makes no jobs, and the report says so
        unsplit = set(facts.batches) - set(facts.bids.values()) if self.plan.fails else set()
        for name, bid in self.depositor.bid_of.items():
            if name not in done | excused and bid not in {*self.operator.ended, *unsplit}:
                yield f"jobs: {name} was deposited, and has no job"
        for bid, status in facts.batches.items():
            if not BATCH.facts[BatchState(status["status"])].ended:
                yield f"ended: {bid} is {status['status']}: {status.get('message')}"

    def _storage(self) -> Iterator[str]:
        """Each stored job has one version, and the file of a completed job is in one object."""
        facts = self.facts
        folders = {
            folder: json.loads((folder / "inventory.json").read_bytes())
            for folder in (path.parent for path in self.home.rglob("0=ocfl_object_*"))
            if (folder / "inventory.json").exists()
        }
        yield from _damaged(folders)
        inventories = list(folders.values())
        versions = sum(len(inventory["versions"]) for inventory in inventories)
        reached = [(one, JobState(state)) for one, state in facts.reached if one in facts.jobs]
        # a job that ended may have ended after its version was stored, and before it moved
        failed = {one for one, job in facts.jobs.items() if JOB.facts[JobState(job["status"])].failed}
        stored = {jid for jid, state in reached if JOB.facts[state].stored}
        processed = {jid for jid, state in reached if state is JobState.PROCESSING}
        least, most = len(stored), len(stored | (failed & processed))
        if not least <= versions <= most:
            yield f"versions: {least} to {most} jobs were stored, and storage has {versions} versions"
        completed = {facts.names[jid] for jid in facts.in_state(JobState.COMPLETED)}
        holders: dict[str, set[str]] = {}
        for digest, name in self.depositor.sources.digests.items():  # a source may have changed its content
            arks = {one["id"] for one in inventories if digest in one["manifest"]}
            holders.setdefault(name, set()).update(arks)
        for name, arks in holders.items():
            if len(arks) > 1 or (name in completed and not arks):
                yield f"objects: {name} is stored in {len(arks)} objects: {sorted(arks)}"
        for inventory in inventories if self.plan.ezid else ():
            status = self.outside.names.get(inventory["id"], {}).get("_status")
            if status != "public":
                yield f"ezid: {inventory['id']} is stored, and at EZID it is {status}"

    def _services(self) -> Iterator[str]:
        """What was to be delivered was delivered, and twice only where an answer may have been lost."""
        yield from self.outside.judge(self.faults_of)
        for bid, status in self.facts.batches.items() if self.plan.mail else ():
            if status["status"] != BatchState.DELETED and not self.outside.delivered(f"{bid}.report-"):
                yield f"delivery: {bid} is {status['status']}, and no report was delivered"
        for jid in self.facts.in_state(JobState.COMPLETED) if self.plan.callbacks else ():
            # otherwise the operator ended it, without a callback
            notified = self.facts.jobs[jid].get("last_successful_status") != JobState.RECORDING
            if notified and not self.outside.delivered(f"{jid}-"):
                yield f"delivery: {jid} is completed, and no callback was delivered"


def _damaged(objects: dict[Path, Any]) -> Iterator[str]:
    """`objects`: folder -> inventory."""
    for folder, inventory in objects.items():
        for digest, paths in inventory["manifest"].items():
            for path in (folder / name for name in paths):
                if not path.is_file() or sha512(path.read_bytes()).hexdigest() != digest:
                    yield f"damaged: {path} does not have the bytes that {inventory['id']} declares"
