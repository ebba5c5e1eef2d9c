"""Rules for every kind of storage: which requests are valid, and what an update carries over."""

import re
from collections.abc import Collection, Iterable

from pipeline import names
from pipeline.errors import UsageRefused
from pipeline.fixity import ContentFile, StoredFile
from pipeline.outcome import content, system
from pipeline.records import SubmissionMode
from pipeline.storage.base import StoreRequest


def check_request(request: StoreRequest) -> None:
    """StepFailed if the request is invalid for every object."""
    if not re.fullmatch(r"\w+", request.jid):
        raise system(f"'{request.jid}' is not a job id")
    if not request.files:
        raise content(f"{request.ark} has no file to store: an object needs at least one")
    check_names(file.path for file in request.files)


def check_names(paths: Iterable[str]) -> None:
    """StepFailed(content) unless all logical paths are safe and can be in one object together."""
    listed = tuple(paths)
    for path in listed:
        try:
            names.safe_name(path, stored=True)  # an update carries what early releases stored
        except names.UnsafeName as error:
            raise content(str(error)) from error
    for clash in names.duplicates(listed, case_fold=False):
        raise content(f"the object cannot be stored: {clash.reason}")


def carried_paths(request: StoreRequest, latest: int, paths: Collection[str]) -> set[str]:
    """The paths of the latest version that the request's version will also have.

    `latest` is the number of the object's latest version, 0 if there is no object; `paths` are its files.
    An update carries over the depositor's files. Our own files describe one version and are written anew.
    StepFailed if this object cannot accept the request.
    """
    if request.new and latest:
        raise system(
            f"{request.ark} was just minted, but an object with this ARK exists: the counter of minted "
            "identifiers was reset; set it beyond the last ARK in storage, then submit again"
        )
    if request.mode is SubmissionMode.RESET and not latest:
        raise content(f"{request.ark} cannot be reset, because it does not exist: submit it with mode add")
    if request.mode is not SubmissionMode.UPDATE:
        return set()
    for path in request.delete:
        if path not in paths:
            version = f"version {latest} of {request.ark}" if latest else f"{request.ark}, which is new"
            other = names.composed_otherwise(path, paths)
            why = f"; it {names.COMPOSED_OTHERWISE} from {names.quote_name(other)}, which is" if other else ""
            raise content(f"{names.quote_name(path)} cannot be deleted: it is not in {version}{why}")
    carried = {path for path in paths if path.startswith(names.PRODUCER)} - set(request.delete)
    if request.delete and not carried and not any(f.path.startswith(names.PRODUCER) for f in request.files):
        raise content(f"{request.ark} would have no files left: an object needs at least one")
    return carried


def describe_mismatch(file: ContentFile | StoredFile, actual: tuple[int, str]) -> str:
    """How bytes of the `actual` size and sha512 differ from the file's."""
    size, sha512 = actual
    if size != file.size:
        return f"it has {size} bytes, not {file.size}"
    return f"its sha512 is {sha512}, not {file.sha512}"


def stored_elsewhere(ark: str, url: str, configured: str) -> UsageRefused:
    """The refusal to read an object that is in another storage service than the settings name."""
    return UsageRefused(
        f"{ark} was stored at {url}, but the settings name {configured}: use the storage settings of the "
        "workers"
    )


def check_source(file: ContentFile, actual: tuple[int, str]) -> None:
    """StepFailed(system) if a file in working storage changed after its download."""
    if actual != (file.size, file.sha512):
        raise system(
            f"{file.source} changed after it was downloaded: {describe_mismatch(file, actual)}; "
            "delete the job and submit it again"
        )
