"""Adding a version to an object so that a crash at any moment leaves a valid store.

Rule: a version is staged whole, outside the objects, and becomes visible by one rename under the object's
lock; an object's first version comes with the object itself. The root inventory follows by a second rename.
Between the two the version's folder is ahead of the root inventory: whoever locks the object next settles
that, forwards if the version is sound. What extensions/arkline holds is no part of any object:
`staging/JID-TOKEN/` an unfinished version, `locks/` the objects' locks, `aside/` what was found unsound.
"""

import hashlib
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.outcome import AttemptOver, StepFailed, system
from pipeline.storage.ocfl import disk, layout, objects

log = logging.getLogger(__name__)


class Root:
    """A storage root on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = folder / "extensions" / "arkline"
        self.staging = self.own / "staging"
        self.aside = self.own / "aside"

    def object(self, ark: str) -> Path:
        return self.folder / objects.object_path(ark)

    def lock(self, ark: str) -> Path:
        return self.own / "locks" / hashlib.sha256(ark.encode()).hexdigest()

    def open(self) -> None:
        """Make the root if it is not there yet; several processes may do so at once."""
        declaration = self.folder / objects.ROOT_DECLARATION[0]
        if not declaration.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            there = [path.name for path in self.folder.iterdir()]
            # Asked again: another process may have made the root meanwhile, and put an object into it.
            if not declaration.exists():
                remedy = "set ARKLINE_STORAGE_ROOT to an empty folder or to an OCFL root"
                layout.check_free(there, str(self.folder), remedy)
            for path, data in layout.files().items():
                self._make(self.folder / path, data)
        layout.check(_read(self.folder / layout.CONFIGURATION), str(self.folder))

    def _make(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.staging.mkdir(parents=True, exist_ok=True)
        draft = self.staging / f"root-{secrets.token_hex(8)}"
        disk.write(draft, data)
        draft.replace(path)
        disk.sync(path.parent)


@contextmanager
def staged(root: Root, jid: str) -> Iterator[Path]:
    """A fresh folder for this attempt, gone afterwards; what earlier attempts of the job left goes first.

    A stopped attempt that wakes up finds its folder gone: then it is over.
    """
    forget(root, jid)
    folder = root.staging / f"{jid}-{secrets.token_hex(8)}"
    folder.mkdir(parents=True)
    try:
        yield folder
    except FileNotFoundError as error:
        if folder.exists():
            raise
        raise AttemptOver(f"another attempt of {jid} is storing") from error
    finally:
        _remove(folder)


def forget(root: Root, jid: str) -> None:
    """Remove what unfinished attempts of the job left in staging."""
    for leftover in root.staging.glob(f"{jid}-*"):
        _remove(leftover)


def leftovers(root: Root) -> tuple[str, ...]:
    """The jobs that have a folder in staging."""
    return tuple(sorted({folder.name.partition("-")[0] for folder in root.staging.glob("jid*-*")}))


def _remove(folder: Path) -> None:
    """Renamed first: its writer, should it wake up, must find all of it or nothing."""
    gone = folder.with_suffix(".gone")
    try:
        folder.rename(gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def unsettled(folder: Path, head: objects.Inventory) -> bool:
    """Whether a writer stopped, or is at work, between its two renames."""
    if (folder / f"v{head.number + 1}").exists():
        return True
    data = (folder / objects.INVENTORY).read_bytes()
    return _read(folder / objects.SIDECAR) != objects.sidecar(data)


def settle(root: Root, ark: str, stage: Path) -> objects.Inventory | None:
    """Under the object's lock: finish or undo what a writer left, then answer the head."""
    folder = root.object(ark)
    head = objects.read_head(folder)
    if head is None:
        return None
    if head.id != ark:
        raise system(f"{folder} holds {head.id}, not {ark}")
    _settle_sidecar(folder, head, stage)
    ahead = folder / f"v{head.number + 1}"
    if not ahead.exists():
        return head
    try:
        found = objects.read_version(ahead)
        sound = objects.extends(found, head) and _has_content(folder, found, head)
    except (StepFailed, OSError):
        sound = False
    if sound:
        log.warning("%s: finishing %s, which a stopped writer left", ark, found.head)
        _replace_head(folder, (ahead / objects.INVENTORY).read_bytes(), stage)
        return found
    root.aside.mkdir(parents=True, exist_ok=True)
    place = root.aside / f"{folder.name[:100]}-{ahead.name}-{secrets.token_hex(4)}"
    log.error("%s: %s is not in the inventory and not sound; moved to %s", ark, ahead.name, place)
    ahead.rename(place)
    disk.sync(folder)
    return head


def publish(
    root: Root, ark: str, inventory: objects.Inventory, stage: Path, fence: Callable[[], None]
) -> None:
    """Under the object's lock: make the staged content visible as the inventory's head.

    `fence` is the last thing asked before the rename; afterwards nothing can fail the job any more.
    """
    data = inventory.encode()
    version = stage / "version"
    version.mkdir()
    content = stage / objects.CONTENT
    _prune(content, inventory)
    if content.exists():
        content.rename(version / objects.CONTENT)
    _write_pair(version, data)
    if inventory.number == 1:
        _publish_object(root, objects.object_path(ark), data, stage, fence)
        return
    folder = root.object(ark)
    disk.sync(version)
    fence()
    version.rename(folder / inventory.head)
    disk.sync(folder)
    _replace_head(folder, data, stage)


def _publish_object(root: Root, path: Path, data: bytes, stage: Path, fence: Callable[[], None]) -> None:
    """The whole object, with the folders above it that do not exist yet: the root never has an empty one."""
    tree = stage / "tree"
    folder = tree / path
    folder.mkdir(parents=True)
    (stage / "version").rename(folder / "v1")
    name, text = objects.OBJECT_DECLARATION
    disk.write(folder / name, text)
    _write_pair(folder, data)
    for made in (folder / "v1", folder, *folder.parents):
        disk.sync(made)
        if made == tree:
            break
    fence()
    for depth in range(1, len(path.parts) + 1):
        part = Path(*path.parts[:depth])
        if depth < len(path.parts) and (root.folder / part).exists():
            continue
        try:
            (tree / part).rename(root.folder / part)
        except OSError:
            # Another new object made this folder meanwhile: ours goes into it.
            if depth < len(path.parts) and (root.folder / part).exists():
                continue
            raise
        disk.sync((root.folder / part).parent)
        return


def _prune(content: Path, inventory: objects.Inventory) -> None:
    """Drop staged files whose bytes the object got from another job meanwhile."""
    start = f"{inventory.head}/{objects.CONTENT}/"
    wanted = {p.removeprefix(start) for ps in inventory.manifest.values() for p in ps if p.startswith(start)}
    for parent, _, files in os.walk(content, topdown=False):
        for name in files:
            path = Path(parent, name)
            if path.relative_to(content).as_posix() not in wanted:
                path.unlink()
        if not any(Path(parent).iterdir()):
            Path(parent).rmdir()


def _write_pair(folder: Path, data: bytes) -> None:
    disk.write(folder / objects.INVENTORY, data)
    disk.write(folder / objects.SIDECAR, objects.sidecar(data))


def _replace_head(folder: Path, data: bytes, stage: Path) -> None:
    """The inventory first: a head whose sidecar is late is settled from its version's folder."""
    _replace(folder / objects.INVENTORY, data, stage)
    _replace(folder / objects.SIDECAR, objects.sidecar(data), stage)


def _replace(path: Path, data: bytes, stage: Path) -> None:
    draft = stage / f"{path.name}-{secrets.token_hex(4)}"
    disk.write(draft, data)
    draft.replace(path)
    disk.sync(path.parent)


def _settle_sidecar(folder: Path, head: objects.Inventory, stage: Path) -> None:
    data = (folder / objects.INVENTORY).read_bytes()
    if _read(folder / objects.SIDECAR) == objects.sidecar(data):
        return
    if _read(folder / head.head / objects.INVENTORY) != data:
        raise system(
            f"{folder / objects.INVENTORY} does not have the digest in {objects.SIDECAR}: it is damaged; "
            f"restore it from {folder / head.head}"
        )
    log.warning("%s: finishing the sidecar of %s, which a stopped writer left", head.id, head.head)
    _replace(folder / objects.SIDECAR, objects.sidecar(data), stage)


def _has_content(folder: Path, found: objects.Inventory, head: objects.Inventory) -> bool:
    brought = found.manifest.keys() - head.manifest.keys()
    return all((folder / path).is_file() for digest in brought for path in found.manifest[digest])


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
