"""The inventory entry of a stored version, rebuilt from the files that describe the version in storage.

Facts that storage does not have stay unknown: where and when the files were downloaded, and when they were
last read back.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from pipeline import names
from pipeline.description import anvl, metadata
from pipeline.fixity import StoredVersion
from pipeline.inventory.base import Recording
from pipeline.manifests import storage_manifest
from pipeline.names import quote_name
from pipeline.outcome import StepFailed, system
from pipeline.records import Job
from pipeline.storage.base import Storage

Nodes = Iterable[int | None]
"""Storage nodes that may have a version; None is the service's default node."""


def version_of(storage: Storage, ark: str, jid: str, key: str, nodes: Nodes) -> StoredVersion | None:
    """The job's version on any of the nodes; None if no node has it."""
    asked = dict.fromkeys(map(storage.node_of, nodes))
    versions = (storage.version_of(ark, jid, node, key) for node in asked)
    return next((version for version in versions if version is not None), None)


def recording_of(storage: Storage, ark: str, jid: str, key: str = "", nodes: Nodes = (None,)) -> Recording:
    """The entry of the job's version; StepFailed if the version is incomplete or describes another job."""
    version = version_of(storage, ark, jid, key, nodes)
    if version is None:
        raise system(f"storage has no version of {ark} from {jid}")

    def read(name: str) -> bytes:
        data = storage.read(ark, f"system/{name}", version.number, url=version.url)
        if data is None:
            raise system(f"version {version.number} of {ark} has no system/{name}")
        return data

    ingest = _values(read(metadata.INGEST), metadata.INGEST)
    key = key or version.key or ingest.get("jobKey", "")
    if ingest.get("job") != jid or ingest.get("jobKey", "") not in ("", key):
        raise system(f"system/{metadata.INGEST} of version {version.number} of {ark} is not of job {jid}")
    kind = _values(read(metadata.MOM), metadata.MOM)
    return Recording(
        version=replace(version, key=key),
        mime_types={file.path: storage_manifest.mime_type(file.path) for file in version.files},
        owner=read(metadata.OWNER).decode().strip(),
        collections=tuple(read(metadata.MEMBERSHIP).decode().split()),
        local_id=names.parse_local_ids(ingest.get("localIdentifier", "")),
        erc=anvl.kernel(anvl.parse(read(metadata.ERC), metadata.ERC)),
        object_type=kind.get("type", ""),
        object_role=kind.get("role", ""),
        aggregate_role=kind.get("aggregate", ""),
        profile=ingest.get("profile", ""),
        bid=ingest.get("batch", ""),
        jid=jid,
        key=key,
        submitter=ingest.get("userAgent", ""),
        payload_name=ingest.get("file", ""),
        ingest_type=ingest.get("type", ""),
        submitted=_moment(ingest.get("submissionDate", "")) or version.created,
        note=ingest.get("note", ""),
    )


def names_job(storage: Storage, version: StoredVersion, job: Job) -> bool:
    """Whether a version without a key describes itself as the job's, by job number, batch and second.

    Releases before 0.2.1 gave jobs no key. A reused number has another second of submission.
    """
    path = f"system/{metadata.INGEST}"
    data = storage.read(version.ark, path, version.number, url=version.url)
    try:
        ingest = dict(anvl.parse(data or b"", path))
    except StepFailed:
        return False  # a file of another system with the same name
    submitted = job.configuration.submitted_at.astimezone(UTC).replace(microsecond=0)
    named = (ingest.get("job"), ingest.get("batch"), _moment(ingest.get("submissionDate", "")))
    return not version.key and named == (job.jid, job.bid, submitted)


def require_as_sent(storage: Storage, version: StoredVersion) -> None:
    """StepFailed(system) unless the version has the files in its own manifest, as they were sent.

    For a version that has not been read back yet: a service may have stored other bytes than it received.
    """
    path = f"system/{storage_manifest.NAME}"
    manifest = storage.read(version.ark, path, version.number, url=version.url)
    restore = "restore the object from a copy of the storage, then resume the job"
    if manifest is None:
        raise system(f"version {version.number} of {version.ark} has no {path}: {restore}")
    if unlike := storage_manifest.unlike(manifest, version.files):
        raise system(
            f"version {version.number} of {version.ark} has not the bytes of {quote_name(unlike)} that its "
            f"{path} lists: {restore}"
        )


def _values(data: bytes, name: str) -> dict[str, str]:
    return {
        element: "" if value == anvl.UNKNOWN else value
        for element, value in anvl.parse(data, f"system/{name}")
    }


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
