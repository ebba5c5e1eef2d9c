"""The drill after a judged run: reconcile, check the exported bags, restore the newest backup.

Rule: nothing of the run is changed. A restore goes to another ZooKeeper root, beside another inventory; the
storage root is only read.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import bagit
from sqlalchemy import make_url

from operations.checks.check import CheckView, check
from operations.checks.deployment import restore, restore_inventory
from operations.site import Site
from pipeline.errors import ArklineError
from pipeline.inventory.database import Database
from pipeline.settings import Settings
from tools.chaos.acts import Acts, Backup, Exported
from tools.chaos.final_state import FinalState, read_inventory, read_record
from tools.chaos.operator_verbs import PERSON
from tools.chaos.problem import Category, Problem
from tools.chaos.restored_checker import Restored, check_restored
from zkstate.care.audit import audit
from zkstate.connection.session import Session, connect
from zkstate.fleet import counters


@dataclass(frozen=True)
class Drill:
    """A loss, and what an operator finds afterwards."""

    lost: str
    put_inventory: Callable[[Session, Settings, Settings, Path], None]


def drill(settings: Settings, final: FinalState, acts: Acts, say: Callable[[str], None]) -> Iterator[Problem]:
    """Yield the problems; call once all workers are gone."""
    # as in a command's process: a fault may have replaced the file since this process opened it
    Database(settings.inventory).close()
    try:
        with connect(settings) as session:
            view = _reconcile(session, settings)
    except ArklineError as error:
        yield Problem(Category.AUDIT, "", f"check ended with an error: {error}")
    else:
        say(f"check: {view.compared} compared, {view.left} differences")
        yield from _left(view, acts, "check")
    bags = [exported for exported in acts.exports if exported.folder.exists()]
    for bag in bags:
        yield from check_bag(bag, final)
    complete = [backup for backup in acts.backups if backup.folder.exists()]
    say(f"{len(bags)} exported bags are checked, of {len(complete)} backups the newest one is restored")
    # a loss is drilled with a copy of the inventory's file, which PostgreSQL has none of
    drilled = complete and make_url(settings.inventory).get_backend_name() == "sqlite"
    for number, loss in enumerate(LOSSES if drilled else (), 1):
        yield from _restored(settings, complete[-1], final, acts, loss, f"drill{number}")


def _reconcile(session: Session, settings: Settings, *, repair: bool = False) -> CheckView:
    return check(Site(settings, session), PERSON, repair=repair)


def _left(view: CheckView, acts: Acts, after: str) -> Iterator[Problem]:
    """Problems left by a repair; a version stored before its job was deleted stays, and is reported."""
    if view.unreachable:
        yield Problem(Category.AUDIT, "", f"{after}: {view.unreachable}")
    for difference in view.differences:
        if difference.jid not in acts.deleted_jobs:
            yield Problem(Category.AUDIT, difference.jid, f"{after}: {difference!r}")


def check_bag(exported: Exported, final: FinalState) -> Iterator[Problem]:
    """Check that a bag has exactly the bytes of the version, and is valid to an independent validator."""
    name = f"the bag of {exported.ark} version {exported.number}"
    try:
        bagit.Bag(str(exported.folder)).validate()
    except bagit.BagError as error:
        yield Problem(Category.ILLEGAL, "", f"{name} is not valid: {error}")
        return
    data = exported.folder / "data"
    files = {
        str(file.relative_to(data)): hashlib.sha512(file.read_bytes()).hexdigest()
        for file in data.rglob("*")
        if file.is_file()
    }
    stored = [v.files for v in final.versions if (v.ark, v.number) == (exported.ark, exported.number)]
    if [files] != stored:
        yield Problem(Category.ILLEGAL, "", f"{name} has other files than storage")


def _copy_of_present(session: Session, present: Settings, drilled: Settings, folder: Path) -> None:
    source, copy = (Path(make_url(settings.inventory).database or "") for settings in (present, drilled))
    copy.parent.mkdir(parents=True)
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(copy)) as to:
        live.backup(to)


def _copy_of_backup(session: Session, present: Settings, drilled: Settings, folder: Path) -> None:
    restore_inventory(Site(drilled, session), folder)


LOSSES = (Drill("ZooKeeper", _copy_of_present), Drill("ZooKeeper and the inventory", _copy_of_backup))


def _with_record(settings: Settings, name: str) -> Settings:
    """The same storage root with another, rebuilt record and inventory: a copy would keep derived values."""
    inventory = f"sqlite:///{settings.home / name / 'inventory.sqlite'}"
    own = settings.model_dump(exclude_unset=True)
    return Settings(**{**own, "zk_root": f"/{name}", "inventory_url": inventory})


def _restored(
    settings: Settings, backup: Backup, final: FinalState, acts: Acts, loss: Drill, name: str
) -> Iterator[Problem]:
    drilled = _with_record(settings, name)
    title = f"backup {backup.folder.name} after the loss of {loss.lost}"
    try:
        with connect(drilled) as session:
            loss.put_inventory(session, settings, drilled, backup.folder)
            restore(Site(drilled, session), backup.folder)
            repaired = _reconcile(session, drilled, repair=True)
            again = _reconcile(session, drilled)
            restored = Restored(
                state=FinalState(),
                last_job=counters.last(session, "job"),
                last_batch=counters.last_batch(session),
            )
            read_record(session, restored.state)
            restored.state.findings = [str(finding) for finding in audit(session)]
        read_inventory(drilled.inventory, restored.state)
    except ArklineError as error:
        yield Problem(Category.LOST, "", f"{title}: it cannot be restored: {error}")
        return
    yield from _left(again, acts, f"{title}: after `check --repair` ({repaired.repaired})")
    for problem in check_restored(backup, restored, final, acts):
        yield Problem(problem.sort, problem.about, f"{title}: {problem.text}")
