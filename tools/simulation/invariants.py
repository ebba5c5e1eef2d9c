"""What holds after each change of the record, and at the end: read from the tree and the files alone."""

import json
from collections.abc import Iterable, Iterator
from hashlib import sha512
from itertools import pairwise
from pathlib import Path
from typing import Any

from pipeline.states import JOB, Bucket, JobState
from tools.simulation.ensemble import Change, Create, Delete, Put, Tree

_QUEUES = tuple(f"/jobs/states/{state.value}" for state in JobState)

_BUCKET = {JobState.COMPLETED: Bucket.COMPLETED, JobState.FAILED: Bucket.FAILED}


def after_change(tree: Tree, changes: Iterable[Change]) -> Iterator[str]:
    """The rules that the changed jobs break now."""
    for jid in dict.fromkeys(filter(None, map(_job_of, changes))):
        status = tree.nodes.get(f"/jobs/{jid}/status")
        if status is not None:
            yield from _places(tree, jid, JobState(json.loads(status.data)["status"]))


def _job_of(change: Change) -> str:
    if not isinstance(change, Create | Put | Delete):
        return ""
    match change.path.split("/"):
        case ["", "jobs", "states", _, entry]:
            return entry.partition("-")[2]
        case ["", "jobs", jid, "status"]:
            return jid
        case ["", "batches", _, "states", _, jid]:
            return jid
        case _:
            return ""


def _places(tree: Tree, jid: str, state: JobState) -> Iterator[str]:
    """A job is in the queue of its state alone, and in one bucket of its batch: that of its state."""
    queued = [
        folder.rpartition("/")[2]
        for folder in _QUEUES
        if folder in tree.nodes
        for entry in tree.nodes[folder].children
        if entry.endswith(f"-{jid}")
    ]
    if queued != ([] if state is JobState.COMPLETED else [state.value]):
        yield f"{jid} is {state}, and queued in {queued}"
    configuration = tree.nodes.get(f"/jobs/{jid}/configuration")
    bid = json.loads(configuration.data).get("batch_id", "") if configuration else ""
    buckets = [
        bucket
        for bucket in Bucket
        if (node := tree.nodes.get(f"/batches/{bid}/states/{bucket.value}")) and jid in node.children
    ]
    if bid and buckets != [_BUCKET.get(state, Bucket.PROCESSING)]:
        yield f"{jid} is {state}, and its batch has it in {buckets}"


def rows_of(tree: Tree) -> set[str]:
    """The rows of the table of states that the histories of jobs have: `source event target`."""
    rows = set[str]()
    for path, node in tree.nodes.items():
        match path.split("/"):
            case ["", "jobs", _, "history"]:
                rows |= _rows(json.loads(node.data))
            case _:
                pass
    return rows


def _rows(entries: Any) -> set[str]:
    listed = entries if isinstance(entries, list) else entries.get("entries", [])
    return {
        f"{before['state']} {after['event']} {after['state']}"
        for before, after in pairwise(listed)
        if after.get("event")
    }


ALL_ROWS = {f"{row.source} {row.event} {row.target}" for row in JOB.table}


def at_end(tree: Tree, home: Path, digests: dict[str, str], objects: int) -> Iterator[str]:
    """Each deposited file must be in one object of the storage root, and each job have one version there.

    Stored files must have the bytes whose digests their objects declare.
    """
    states = {
        path.split("/")[2]: json.loads(node.data)
        for path, node in tree.nodes.items()
        if path.startswith("/jobs/jid") and path.endswith("/status")
    }
    if len(states) != objects:
        yield f"{objects} objects were deposited, and the record has {len(states)} jobs"
    for jid, status in states.items():
        if status["status"] != JobState.COMPLETED:
            yield f"{jid} is {status['status']}: {status['message']}"
    folders = {
        folder: json.loads((folder / "inventory.json").read_bytes())
        for folder in (path.parent for path in home.rglob("0=ocfl_object_*"))
        if (folder / "inventory.json").exists()
    }
    yield from _damaged(folders)
    inventories = list(folders.values())
    versions = sum(len(inventory["versions"]) for inventory in inventories)
    if versions != objects:
        yield f"{objects} objects were deposited, and storage has {versions} versions"
    for digest, name in digests.items():
        holders = [inventory["id"] for inventory in inventories if digest in inventory["manifest"]]
        if len(holders) != 1:
            yield f"{name} is stored in {len(holders)} objects: {holders}"
    for path in tree.nodes:
        if path.startswith("/space/working/"):
            yield f"{path} is left, although nothing needs space"


def _damaged(objects: dict[Path, Any]) -> Iterator[str]:
    """`objects`: folder -> inventory."""
    for folder, inventory in objects.items():
        for digest, paths in inventory["manifest"].items():
            for path in (folder / name for name in paths):
                if not path.is_file() or sha512(path.read_bytes()).hexdigest() != digest:
                    yield f"{path} does not have the bytes that {inventory['id']} declares"
