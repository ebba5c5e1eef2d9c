"""The files of an unpacked container, and the message of a check that refuses them."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.containers.declared import UnpackedContainer
from pipeline.names import UnsafeName, safe_name
from pipeline.outcome import StepFailed
from pipeline.states import FailureKind
from pipeline.working_storage.workspace import DownloadedFile


def unpacked_container(folder: Path, files: Mapping[str, bytes]) -> UnpackedContainer:
    """`files` written below `folder`."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return arrived(folder)


def arrived(folder: Path) -> UnpackedContainer:
    """Everything below `folder`."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name, data = path.relative_to(folder).as_posix(), path.read_bytes()
            found[name] = DownloadedFile(path=name, size=len(data), sha512=hashlib.sha512(data).hexdigest())
    return UnpackedContainer(folder, found, UNATTENDED)


def refusal(check: Callable[[], object]) -> str:
    """The message for the depositor from a check that refuses."""
    with pytest.raises(StepFailed) as caught:
        check()
    assert caught.value.kind is FailureKind.CONTENT
    return caught.value.message


def storable(name: str) -> bool:
    """Whether a file of this name is accepted."""
    try:
        safe_name(name)
    except UnsafeName:
        return False
    return True
