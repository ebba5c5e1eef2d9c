"""Which errors of a file system are faults of the file system, and not of one file."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.outcome import ServiceDown
from pipeline.services import Service

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""No space, or no quota, is left."""

_LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""No descriptor, memory or process is left on this machine; EAGAIN is that of fork."""

_BROKEN = frozenset(
    {
        errno.EROFS,
        errno.EIO,
        errno.ESTALE,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTCONN,  # a FUSE mount whose server ended
        errno.ENODEV,
        errno.ENXIO,
        errno.EHOSTDOWN,
        errno.ETIMEDOUT,  # a soft NFS mount
    }
)
"""Read-only, damaged, gone, or not for this user: the next file would meet the same."""


def is_full(error: OSError) -> bool:
    return error.errno in FULL


def lack_of_host(error: BaseException) -> ServiceDown | None:
    """A lack of descriptors, memory or processes as a fault of the worker's machine, which is no job's."""
    is_lack = isinstance(error, OSError) and error.errno in _LACKING
    if not is_lack and not (isinstance(error, RuntimeError) and "can't start new thread" in str(error)):
        return None
    message = f"the worker's host lacks descriptors, memory or processes ({error})"
    return ServiceDown(Service.WORKER_HOST, message, of_host=True)


@contextmanager
def host_lacks() -> Iterator[None]:
    """Raise a lack of the worker's machine as its outage."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if (outage := lack_of_host(error)) is not None:
            raise outage from error
        raise


def is_fault_of(error: OSError, root: Path) -> bool:
    """Whether the file system of `root` is at fault, apart from being full."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return not root.is_dir()
    return error.errno in _BROKEN


@contextmanager
def mount_faults(service: Service, root: Path, name: str) -> Iterator[None]:
    """Raise a fault of the file system of `root` as an outage of `service`; `name` is for people."""
    try:
        yield
    except OSError as error:
        if is_fault_of(error, root):
            raise ServiceDown(service, fault_message(name, root, error), of_host=True) from error
        raise


def fault_message(name: str, root: Path, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"{name} {root} is missing: mount its disk on this host"
    return f"{name} {root} cannot be used: {error.strerror or error}"
