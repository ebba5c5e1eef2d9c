"""A version in the form that the storage service accepts."""

import re
from pathlib import Path

from pipeline.fixity import ContentFile
from pipeline.names import quote_name
from pipeline.outcome import content, system
from pipeline.storage import base
from pipeline.storage.base import StoreRequest, carried_paths, check_names
from plugins.merritt.manifest import ManifestObject

_MANIFEST = "storage.checkm"
_DECODED = re.compile("%20|%7c", re.IGNORECASE)


def check_request(request: StoreRequest, stored: ManifestObject | None) -> None:
    """StepFailed unless the service can store this version."""
    base.check_request(request)
    for file in request.files:
        if _DECODED.search(file.path):
            raise content(
                f"file name {quote_name(file.path)} contains '%20' or '%7c', which the storage service "
                "decodes to a blank or a bar: rename the file"
            )
    latest = stored.head.files if stored else {}
    carried = carried_paths(request, stored.head.number if stored else 0, latest)
    if carried:
        check_names(carried | request.digests.keys())
    foreign = sorted(path for path in carried - request.digests.keys() if latest[path].sha512 is None)
    if foreign:
        raise system(
            f"{quote_name(foreign[0])} of {request.ark} has a {latest[foreign[0]].algorithm} digest, not "
            "sha512, so an update cannot keep it: submit the whole object with mode add"
        )


def write_own_files(request: StoreRequest) -> None:
    """Write our own files to their places in working storage, from where the service fetches them."""
    for file in request.files:
        if file.data is not None:
            file.source.parent.mkdir(exist_ok=True)
            _replace(file.source, file.data)


def write_manifest(request: StoreRequest, manifest: bytes) -> Path:
    """Write the manifest beside the files, where the service can read it."""
    first: ContentFile = request.files[0]
    path = first.source.parents[first.path.count("/")] / _MANIFEST
    _replace(path, manifest)
    return path


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f"{path.name}.draft")
    draft.write_bytes(data)
    draft.replace(path)
