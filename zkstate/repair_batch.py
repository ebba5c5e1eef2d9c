"""A batch whose nodes cannot be read gets readable ones: from its jobs, its profile and its history."""

from pipeline.errors import UsageRefused
from pipeline.profiles.snapshot import ProfileSnapshot
from pipeline.records import Batch, BatchHistoryEntry, BatchStatus, JobConfiguration, StatusReport, Submission
from pipeline.states import BATCH, Bucket
from zkstate import batches, codec, paths, rebuild, record, salvage
from zkstate.damage import Nodes, Repairer, entry_facts, read_nodes
from zkstate.errors import Missing
from zkstate.rebuild import BatchSurroundings
from zkstate.session import Session
from zkstate.transaction import Create, Delete, Operation

_OF_ONE_OBJECT = {"payload_url", "size", "digest"}
_SHARED = set(JobConfiguration.model_fields) & set(Submission.model_fields) - _OF_ONE_OBJECT
"""The fields of a submission that its jobs repeat."""

_EXAMINED = 20
"""Jobs that are asked for the fields that they repeat."""


def repair_batch(session: Session, bid: str, repairer: Repairer) -> Batch:
    """The batch with readable nodes, in the state in which it was; UsageRefused if every node can be read.

    A report or a profile that cannot be read is removed: the next report is a whole one, and the profile's
    file counts. Stale if the batch changes meanwhile.
    """
    if session.exists(paths.batch(bid)) is None:
        raise Missing(f"there is no batch {bid}")
    session.ensure_node(paths.batch_status(bid))  # a status that is gone is as good as an empty one
    stat = session.exists(paths.batch_status(bid))
    version = stat.version if stat else 0
    history = paths.batch_history(bid)
    parts = [f"{history}/{name}" for name in sorted(session.children(history))]
    own = [path(bid) for path in (paths.submission, paths.batch_status, paths.status_report)]
    nodes = read_nodes(session, [*own, paths.profile_snapshot(bid), *parts, history])
    histories = [nodes.entries(path, BatchHistoryEntry) for path in (*parts, history)]
    around = _surroundings(session, bid, nodes, version, tuple(entry for part in histories for entry in part))
    submission = nodes.read(Submission, path := paths.submission(bid))
    if submission is None:
        submission = rebuild.submission(nodes.data[path] or b"", around)
        nodes.replace(path, codec.encode(submission))
    status = nodes.read(BatchStatus, path := paths.batch_status(bid))
    if status is None:
        nodes.note(path)
        status = rebuild.batch_status(nodes.data[path] or b"", around)
    else:
        status = record.next_epoch(status, {"dispatched_at": status.dispatched_at})
    removed = _optional(session, bid, nodes)
    nodes.repair_histories(BatchHistoryEntry, parts, history, histories, required=False)
    if not nodes.damaged:
        raise UsageRefused(f"every znode of {bid} can be read: there is nothing to repair")
    facts = entry_facts(nodes.damaged, repairer)
    entry = BatchHistoryEntry(state=status.status, table=BATCH.version, **facts)
    newest = nodes.put(history, codec.encode_history((*histories[-1], entry)))
    batch = Batch(
        bid=bid,
        submission=submission,
        status=status,
        version=version,
        report=nodes.read(StatusReport, paths.status_report(bid)),
        history=(*around.history, entry),
        history_parts=tuple(map(len, histories[:-1])),
    )
    operations = (*nodes.puts, newest, *removed, *_places(batch, around))
    return record.write(session, batch, status, operations)


def _surroundings(
    session: Session, bid: str, nodes: Nodes, version: int, history: tuple[BatchHistoryEntry, ...]
) -> BatchSurroundings:
    jids = batches.all_jobs(session, bid)
    return BatchSurroundings(
        deposit=_deposit(session, jids, nodes, bid),
        version=version,
        split=session.exists(paths.buckets(bid)) is not None,
        open=session.exists(paths.open_batch(bid)) is not None,
        unended=bool(batches.jobs_in(session, bid, Bucket.PROCESSING)),
        jobs=len(jids),
        reported=nodes.data[paths.status_report(bid)] is not None,
        history=history,
    )


def _deposit(session: Session, jids: list[str], nodes: Nodes, bid: str) -> dict[str, object]:
    """What the first readable job, or else the profile, says of the submission."""
    lost = {name: rebuild.LOST for name in ("payload_url", "working_dir", "profile_name")}
    lost |= {"payload_type": "file", "batch_id": bid}
    for node in session.get_many([paths.configuration(jid) for jid in jids[:_EXAMINED]]):
        read = salvage.fields(JobConfiguration, node[0] if node else b"", lost)
        if read.profile_name != rebuild.LOST:
            values = read.model_dump(mode="json", include=_SHARED)
            return {**values, "type": read.submission_type.value}
    snapshot = nodes.read(ProfileSnapshot, paths.profile_snapshot(bid))
    name = snapshot.profile.get("name") if snapshot else None
    return {"profile_name": name} if isinstance(name, str) and name else {}


def _optional(session: Session, bid: str, nodes: Nodes) -> list[Operation]:
    """Remove what a batch can be without."""
    removed: list[Operation] = []
    for path, kind in (
        (paths.status_report(bid), StatusReport),
        (paths.profile_snapshot(bid), ProfileSnapshot),
    ):
        if nodes.data[path] is not None and nodes.read(kind, path) is None:
            nodes.note(path)
            removed.append(Delete(path))
    return removed


def _places(batch: Batch, around: BatchSurroundings) -> list[Operation]:
    """The batch is among the open ones as its state says, and has folders for its jobs once it is split."""
    facts = BATCH.facts[batch.status.status]
    path = paths.open_batch(batch.bid)
    places: list[Operation] = []
    if facts.open != around.open:
        places.append(Create(path) if facts.open else Delete(path))
    if facts.split and not around.split:
        places.append(Create(paths.buckets(batch.bid)))
        places += [Create(paths.bucket(batch.bid, name)) for name in Bucket]
    return places
