"""The state that a run leaves in every store, read once, with little of the repository's own code."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from hashlib import sha256
from pathlib import Path

from ocfl import StorageRoot
from sqlalchemy import create_engine, text

from pipeline.records import Batch, Job
from pipeline.states import Bucket, JobState
from tools.chaos.cluster import Cluster
from tools.chaos.hostile import HOSTILE
from zkstate import paths
from zkstate.care.audit import audit
from zkstate.connection.session import Session, connect
from zkstate.record import batches, jobs


@dataclass(frozen=True)
class Stored:
    """One version, as stored in OCFL or in the inventory."""

    ark: str
    number: int
    jid: str
    files: dict[str, str]
    """The sha512 of each file, by its logical path."""


@dataclass(frozen=True)
class FileFinding:
    path: str
    """As in the deposit."""
    verdict: str
    code: str


@dataclass(frozen=True)
class CheckedVersion:
    """A run of a check in the inventory."""

    jid: str
    check: str
    findings: tuple[FileFinding, ...]


@dataclass(frozen=True)
class Letter:
    """A delivered mail: the report of a batch, and its jobs by state."""

    name: str
    digest: str
    completed: frozenset[str]
    failed: frozenset[str]


@dataclass(frozen=True)
class Call:
    """A delivered callback."""

    name: str
    jid: str
    status: str


@dataclass
class FinalState:
    jobs: dict[str, Job] = field(default_factory=dict)
    batches: dict[str, Batch] = field(default_factory=dict)
    queued: dict[str, list[JobState]] = field(default_factory=lambda: defaultdict(list))
    buckets: dict[str, dict[Bucket, set[str]]] = field(default_factory=dict)
    versions: list[Stored] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    """Errors that an independent validator reports for the storage root."""
    entries: list[Stored] = field(default_factory=list)
    runs: list[CheckedVersion] = field(default_factory=list)
    local_ids: dict[str, str] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    """Folders in working storage, as BID or BID/JID."""
    leftovers: list[str] = field(default_factory=list)
    """Paths in the storage root outside the objects."""
    strays: list[str] = field(default_factory=list)
    """Files written into the empty mount point of a disk that was not mounted."""
    minted: dict[str, str] = field(default_factory=dict)
    """ARK -> the job for which it was minted."""
    registered: dict[str, str] = field(default_factory=dict)
    """ARK -> its status at EZID."""
    waiting: list[str] = field(default_factory=list)
    """Jobs and batches that are waiting according to the record."""
    held: list[str] = field(default_factory=list)
    """Locks without a live owner."""
    promised: int = 0
    reservations: dict[str, int] = field(default_factory=dict)
    numbers: int = 0
    """Numbers used for minted ARKs."""
    findings: list[str] = field(default_factory=list)

    def is_hostile(self, bid: str) -> bool:
        """Whether the batch is a hostile one, which had to fail."""
        return bid in self.batches and self.batches[bid].submission.submitter == HOSTILE

    @property
    def deposited(self) -> list[Job]:
        """The jobs of the deposits."""
        return [job for job in self.jobs.values() if not self.is_hostile(job.bid)]


def read(cluster: Cluster) -> FinalState:
    """Read the final state once all workers are gone."""
    final = FinalState()
    with connect(cluster.settings) as session:
        _await_release(session, cluster.settings.zk_session_timeout)
        read_record(session, final)
        final.findings = [str(finding) for finding in audit(session)]
    _storage(cluster.settings.storage, final)
    read_inventory(cluster.settings.inventory, final)
    final.letters = [_letter(mail) for mail in cluster.fakes.postbox.letters()]
    final.calls = [_call(request.headers, request.raw) for request in list(cluster.fakes.receiver.received)]
    final.registered = {ark: known["_status"] for ark, known in cluster.fakes.ezid.identifiers.items()}
    points = [point for disk in cluster.disks.values() for point in disk.mount_points]
    final.strays = [str(path) for point in points for path in point.rglob("*") if path.is_file()]
    working = cluster.settings.working
    for batch in sorted(folder for folder in working.iterdir() if folder.is_dir()):
        below = sorted(batch.iterdir())
        final.folders += [f"{batch.name}/{job.name}" for job in below] or [batch.name]
    return final


def read_record(session: Session, final: FinalState) -> None:
    for bid in session.children(paths.BATCHES):
        final.batches[bid] = batches.load(session, bid)
        final.buckets[bid] = {name: set(batches.jobs_in(session, bid, name)) for name in Bucket}
    for jid in session.children(paths.JOBS):
        final.jobs[jid] = jobs.load(session, jid)
    for state in set(JobState) - {JobState.DELETED}:
        for _, jid in paths.read_queue_entries(session.children(paths.queue(state))):
            final.queued[jid].append(state)
    _shared(session, final)


def _shared(session: Session, final: FinalState) -> None:
    """Read the nodes that belong to no single job: locks, reserved space, counters."""
    final.held = list(_held(session))
    final.waiting = session.children("/waiting")
    final.promised = int(session.get(paths.SPACE)[0] or b"0")
    for jid in session.children(paths.SPACE):
        final.reservations[jid] = int(session.get(paths.reservation(jid))[0])
    for name in session.children("/ids"):
        if name.startswith("ark-"):
            final.numbers += int(session.get(f"/ids/{name}")[0] or b"0")


def _await_release(session: Session, timeout: float) -> None:
    """Wait until ZooKeeper removes the killed workers' locks, when their sessions expire."""
    deadline = time.monotonic() + timeout + 5
    while time.monotonic() < deadline and any(_held(session)):
        time.sleep(0.2)


def _held(session: Session) -> Iterator[str]:
    yield from _ephemerals(session, "/locks")
    locks = [paths.batch_lock(bid) for bid in session.children(paths.BATCHES)]
    locks += [paths.job_lock(jid) for jid in session.children(paths.JOBS)]
    for path, stat in zip(locks, session.exists_many(locks), strict=True):
        if stat is not None:
            yield path


def _ephemerals(session: Session, path: str) -> Iterator[str]:
    stat = session.exists(path)
    if stat is not None and stat.ephemeralOwner:
        yield path
    for name in session.children_of_many([path])[0]:
        yield from _ephemerals(session, f"{path}/{name}")


def _storage(root: Path, final: FinalState) -> None:
    if not root.exists():
        return
    validator = StorageRoot(root=str(root))
    if not validator.validate():
        final.invalid.append(validator.log.status_str() or "the root is not valid")
    final.invalid += [str(error) for error in validator.errors]
    for declaration in root.rglob("0=ocfl_object_1.1"):
        inventory = json.loads((declaration.parent / "inventory.json").read_text())
        for name, version in inventory["versions"].items():
            files = {path: sha512 for sha512, logical in version["state"].items() for path in logical}
            jid = version.get("message", "").rpartition("jid=")[2]
            final.versions.append(Stored(inventory["id"], int(name[1:]), jid, files))
    final.leftovers = [
        str(path.relative_to(root))
        for place in ("staging", "quarantine")
        for path in (root / "extensions" / "arkline").glob(f"{place}/*")
    ]


_ENTRIES = """
select v.id, v.ark, v.number, i.job_id from inv_versions v left join inv_ingests i on i.inv_version_id = v.id
"""
_FILES = "select inv_version_id, pathname, digest_value from inv_files"
_MINTED = "select ark, job_id from minted_arks"
_RUNS = """
select c.id, i.job_id, c.check_name from inv_checks c
left join inv_ingests i on i.inv_version_id = c.inv_version_id order by c.id
"""
_FINDINGS = """
select n.inv_check_id, coalesce(f.pathname, 'producer/' || n.pathname), n.verdict, n.code from inv_findings n
left join inv_files f on f.id = n.inv_file_id order by n.id
"""
_LOCAL_IDS = "select local_id, inv_object_ark from inv_localids"


def read_inventory(url: str, final: FinalState) -> None:
    engine = create_engine(url)
    files: dict[int, dict[str, str]] = defaultdict(dict)
    try:
        with engine.connect() as connection:
            for version, path, digest in connection.execute(text(_FILES)):
                files[version][path] = digest
            findings = defaultdict[int, list[FileFinding]](list)
            for run, path, verdict, code in connection.execute(text(_FINDINGS)):
                findings[run].append(FileFinding(path.removeprefix("producer/"), verdict, code or ""))
            for run, jid, check in connection.execute(text(_RUNS)):
                final.runs.append(CheckedVersion(jid or "", check, tuple(findings[run])))
            for version, ark, number, jid in connection.execute(text(_ENTRIES)):
                final.entries.append(Stored(ark, number, jid or "", files[version]))
            final.minted = {row[0]: row[1] for row in connection.execute(text(_MINTED))}
            final.local_ids = {row[0]: row[1] for row in connection.execute(text(_LOCAL_IDS))}
    finally:
        engine.dispose()


def _letter(message: EmailMessage) -> Letter:
    jobs_by_list: dict[str, frozenset[str]] = {}
    for part in message.iter_attachments():
        (listed,) = json.loads(part.get_content()).values()
        jobs_by_list[str(part.get_filename()).partition(".")[0]] = frozenset(job["jid"] for job in listed)
    return Letter(
        name=str(message["Message-ID"]).strip("<>"),
        digest=sha256(message.as_bytes()).hexdigest(),
        completed=jobs_by_list.get("completed", frozenset()),
        failed=jobs_by_list.get("failed", frozenset()),
    )


def _call(headers: dict[str, str], raw: bytes) -> Call:
    state = json.loads(raw)["job:jobState"]
    return Call(headers["Arkline-Delivery"], state["job:jobID"], state["job:jobStatus"])
