"""Adding a version to an object so that a crash at any moment leaves a valid store.

Rule: a version is staged completely, outside the objects, and becomes visible by one rename under the
object's lock; the first version comes with the object itself. A second rename replaces the root inventory.
Between the two renames, the version's folder is ahead of the root inventory. The next holder of the lock
repairs that: it publishes a valid version and moves an invalid one to quarantine. The folder
extensions/arkline belongs to no object: `staging/JID-TOKEN/` has unfinished versions, `locks/` the locks of
objects, `quarantine/` invalid versions, `deployment.json` the deployment id.
"""

import errno
import hashlib
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.deployment import absent
from pipeline.file_system import is_fault_of, make_synced, sync, sync_all, write_whole
from pipeline.outcome import AttemptOver, Service, StepFailed, system
from pipeline.storage.ocfl import disk, objects

log = logging.getLogger(__name__)

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
"""Errors of a file system without hard links."""

_VERSION = "version"
"""The version's name in the staging folder, until it gets its final name."""


class Root:
    """A storage root on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.extension = folder / "extensions" / "arkline"
        self.staging = self.extension / "staging"
        self.quarantine = self.extension / "quarantine"
        self.declaration = folder / objects.DECLARATION
        self.configuration = folder / objects.CONFIGURATION

    def object(self, ark: str) -> Path:
        return self.folder / objects.object_path(ark)

    def lock(self, ark: str) -> Path:
        return self.extension / "locks" / hashlib.sha256(ark.encode()).hexdigest()

    def open(self) -> None:
        """Create the root if it does not exist; several processes may do this at the same time."""
        if not self.declaration.exists():
            make_synced(self.folder)
            names = [path.name for path in self.folder.iterdir()]
            # Second check: another process may just have created the root and stored an object.
            if not self.declaration.exists():
                remedy = "set ARKLINE_STORAGE_ROOT to an empty folder or to an OCFL root"
                objects.check_free(names, str(self.folder), remedy)
            make_synced(self.staging)
            for path, data in objects.root_files().items():
                make_synced((self.folder / path).parent)
                replace(self.folder / path, data, self.staging)
        objects.check_layout(disk.read_if_present(self.configuration), str(self.folder))


@contextmanager
def staged(root: Root, jid: str) -> Iterator[Path]:
    """A new folder for this attempt, removed afterwards; leftovers of earlier attempts are removed first.

    A paused attempt that continues finds its folder removed and raises AttemptOver; ServiceDown if the root
    is gone.
    """
    _remove_staged(root, jid)
    folder = root.staging / f"{jid}-{secrets.token_hex(8)}"
    folder.mkdir(parents=True)
    try:
        yield folder
    except FileNotFoundError as error:
        if folder.exists():
            raise
        if not root.declaration.exists():
            raise absent(Service.STORAGE, str(root.folder)) from error
        raise AttemptOver(f"another attempt of {jid} is storing") from error
    finally:
        _remove(folder)


def _remove_staged(root: Root, jid: str) -> None:
    """Remove the job's leftover folders in staging."""
    start = f"{jid}-"
    with suppress(FileNotFoundError):
        for name in os.listdir(root.staging):  # noqa: PTH208 - runs in every job
            if name.startswith(start):
                _remove(root.staging / name)


def remove_ended(root: Root, ended: Callable[[str], bool]) -> tuple[str, ...]:
    """Remove leftover folders of ended jobs in staging; returns the ids of these jobs."""
    jobs = sorted({folder.name.partition("-")[0] for folder in root.staging.glob("jid*-*")})
    removed = tuple(jid for jid in jobs if ended(jid))
    for jid in removed:
        _remove_staged(root, jid)
    return removed


def object_folders(root: Root) -> Iterator[Path]:
    """The folders of all objects, found by the depth of the layout."""
    for first in _subfolders(root.folder):
        if first.name != "extensions":
            for second in _subfolders(first):
                for third in _subfolders(second):
                    yield from _subfolders(third)


def _subfolders(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


def _remove(folder: Path) -> None:
    """Rename the folder before removal: a paused writer that continues must see all of it or nothing."""
    renamed = folder.with_suffix(".gone")
    try:
        try:
            folder.rmdir()
        except OSError:  # it is not empty
            folder.rename(renamed)
    except FileNotFoundError:
        return
    shutil.rmtree(renamed, ignore_errors=True)


def needs_repair(stored: disk.ObjectFolder, head: objects.Inventory) -> bool:
    """Whether a writer has stopped, or is still working, between its two renames; or a file was changed."""
    data = _inventory(stored)
    ahead = stored.folder / f"v{head.number + 1}"
    return ahead.exists() or not (_has_sidecar_of(stored, data) and stored.has_copy_of(data, head.head))


def _inventory(stored: disk.ObjectFolder) -> bytes:
    return (stored.folder / objects.INVENTORY).read_bytes()


def _has_sidecar_of(stored: disk.ObjectFolder, inventory: bytes) -> bool:
    return stored.read(objects.SIDECAR) == objects.sidecar(inventory)


def repair(root: Root, ark: str, stage: Path) -> objects.Inventory | None:
    """Finish or undo the work of a stopped writer, under the object's lock; returns the head.

    StepFailed if the object's inventory is neither a writer's nor that of its latest version.
    """
    folder = root.object(ark)
    stored = disk.ObjectFolder(folder)
    head = stored.head()
    if head is None:
        return None
    if head.id != ark:
        raise system(f"{folder} is the folder of {head.id}, not of {ark}")
    data = _inventory(stored)
    stored.check_copy(data, head.head)
    if not _has_sidecar_of(stored, data):
        _repair_sidecar(stored, head, data, stage)
    ahead = folder / f"v{head.number + 1}"
    if not ahead.exists():
        return head
    try:
        unfinished = stored.inventory_of(ahead.name)
        valid = objects.extends(unfinished, head) and _has_content(folder, unfinished, head)
    except StepFailed:
        valid = False
    except OSError as error:
        if is_fault_of(error, root.folder):
            raise  # the fault says nothing about this version
        valid = False
    if valid:
        log.warning("%s: publishing %s, which a stopped writer left", ark, unfinished.head)
        _replace_head(folder, (ahead / objects.INVENTORY).read_bytes(), stage)
        return unfinished
    root.quarantine.mkdir(parents=True, exist_ok=True)
    target = root.quarantine / f"{folder.name[:100]}-{ahead.name}-{secrets.token_hex(4)}"
    log.error("%s: %s is not in the inventory and not valid; moved to %s", ark, ahead.name, target)
    ahead.rename(target)
    sync(folder)
    return head


def content_in(stage: Path) -> Path:
    """The folder of the staged version's content; created with the first file."""
    return stage / _VERSION / objects.CONTENT


def publish(
    root: Root, ark: str, inventory: objects.Inventory, stage: Path, fence: Callable[[], None]
) -> bytes:
    """Make the staged content visible as the inventory's head, under the object's lock; returns its bytes.

    `fence` is the last call before the rename; after the rename the version is valid, whatever happens.
    """
    data = inventory.encode()
    version = stage / _VERSION
    if inventory.number == 1:
        _publish_object(root, objects.object_path(ark), data, stage, fence)
        return data
    folder = root.object(ark)
    with disk.writing() as write:
        written = _write_pair(write, version, data)
        sync_all([version], written)
    fence()
    version.rename(folder / inventory.head)
    sync(folder)
    _replace_head(folder, data, stage)
    return data


def _publish_object(root: Root, path: Path, data: bytes, stage: Path, fence: Callable[[], None]) -> None:
    """Publish a new object together with its missing parent folders: the root never has an empty folder."""
    parts = [*reversed(path.parents[:-1]), path]
    missing = next((n for n, part in enumerate(parts) if not (root.folder / part).exists()), len(parts) - 1)
    above = parts[missing].parent
    staged = [stage / part.relative_to(above) for part in parts[missing:]]
    for part in staged:
        part.mkdir()
    folder = staged[-1]
    version = folder / "v1"
    (stage / _VERSION).rename(version)
    with disk.writing() as write:
        written = [*_write_pair(write, version, data), *_write_pair(write, folder, data)]
        name, text = objects.OBJECT_DECLARATION
        written.append(write(folder / name, text))
        sync_all([version, *staged], written)
    fence()
    for part, ready in zip(parts[missing:], staged, strict=True):
        try:
            ready.rename(root.folder / part)
        except OSError:
            # Another writer has created this folder: move ours into it.
            if part == path or not (root.folder / part).exists():
                raise
        else:
            sync((root.folder / part).parent)
            return


def prune(content: Path, inventory: objects.Inventory) -> None:
    """Remove staged files whose bytes another job has since added to the object."""
    start = f"{inventory.head}/{objects.CONTENT}/"
    changed: set[Path] = set()
    needed = {p.removeprefix(start) for ps in inventory.manifest.values() for p in ps if p.startswith(start)}
    for parent, _, files in os.walk(content, topdown=False):
        for name in files:
            path = Path(parent, name)
            if path.relative_to(content).as_posix() not in needed:
                path.unlink()
                changed.add(path.parent)
        if not any(Path(parent).iterdir()):
            Path(parent).rmdir()
            changed.add(Path(parent).parent)
    sync_all([folder for folder in sorted(changed) if folder.is_relative_to(content) and folder.exists()])


def _write_pair(write: Callable[[Path, bytes], int], folder: Path, data: bytes) -> tuple[int, int]:
    """Write an inventory and its sidecar."""
    return write(folder / objects.INVENTORY, data), write(folder / objects.SIDECAR, objects.sidecar(data))


def _replace_head(folder: Path, data: bytes, stage: Path) -> None:
    """Replace the inventory before its sidecar: an outdated sidecar can be repaired from the version's
    folder, and so can a sidecar that survived a power failure without its inventory.
    """
    drafts = _draft(stage, data), _draft(stage, objects.sidecar(data))
    sync_all(drafts)
    drafts[0].replace(folder / objects.INVENTORY)
    drafts[1].replace(folder / objects.SIDECAR)
    sync(folder)


def replace(path: Path, data: bytes, stage: Path) -> None:
    """Replace a file by a rename; `stage` is a folder on the same file system."""
    write_whole(path, data, _new_path(stage))


def add(path: Path, data: bytes, stage: Path) -> None:
    """Add a whole file unless there is one; `stage` is a folder on the same file system."""
    draft = _draft(stage, data)
    try:
        sync(draft)
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            pass  # whoever added it may not have synced the folder yet
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # a crash can leave this file incomplete, which its reader says
            os.close(disk.create(path, data))
            sync(path)
        sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _new_path(stage: Path) -> Path:
    return stage / f"draft-{secrets.token_hex(8)}"


def _draft(stage: Path, data: bytes) -> Path:
    draft = _new_path(stage)
    os.close(disk.create(draft, data))
    return draft


def _repair_sidecar(stored: disk.ObjectFolder, head: objects.Inventory, data: bytes, stage: Path) -> None:
    if stored.read(f"{head.head}/{objects.INVENTORY}") is None:
        raise stored.unlike_sidecar("from a copy of the storage")
    log.warning("%s: writing the sidecar of %s for a stopped writer", head.id, head.head)
    replace(stored.folder / objects.SIDECAR, objects.sidecar(data), stage)


def _has_content(folder: Path, version: objects.Inventory, head: objects.Inventory) -> bool:
    added = version.manifest.keys() - head.manifest.keys()
    return all((folder / path).is_file() for digest in added for path in version.manifest[digest])
