"""Reads an object again and enters the outcome: the proof that it is undamaged, or the damage.

Rule: nothing is repaired. Damage counts only if a second reading of the same bytes finds it too, and only if
storage as a whole can be read; so a disk that is unmounted meanwhile is no damage of its objects.
"""

import time

from pipeline.files import ReadBackFile
from pipeline.fixity import OnRead, ignore
from pipeline.inventory import fixity
from pipeline.inventory.base import DamagedFile, InventoryObject
from pipeline.inventory.fixity import FixityCheck
from pipeline.inventory.sql import SqlInventory
from pipeline.outcome import DamagedObject
from pipeline.preservation.custody import Custody
from pipeline.preservation.pace import Pace
from pipeline.preservation.proof import Reading, prove
from pipeline.records import now
from pipeline.storage.base import Storage

KEEP_INTERVAL = 60.0
"""Seconds of reading that a crash may cost."""

_REMEDY = "restore the object from a copy of the storage, then check it again"


def check_object(
    inventory: SqlInventory, storage: Storage, ark: str, pace: Pace, agent: str, on_read: OnRead = ignore
) -> FixityCheck | None:
    """Read every version of an object; None if `pace` is over first: the next call continues the reading.

    StepFailed or UsageRefused if storage cannot be read; then nothing is entered.
    """
    known = inventory.describe_object(ark)
    if known is None or not known.versions:
        return None
    check = _Check(inventory, storage, known, pace, on_read).run()
    if check is not None:
        fixity.complete(inventory, check, agent)
    return check


class _Check:
    """The reading of one object, with the results that an interrupted reading has kept."""

    def __init__(
        self, inventory: SqlInventory, storage: Storage, known: InventoryObject, pace: Pace, on_read: OnRead
    ) -> None:
        self._inventory = inventory
        self._storage = storage
        self._known = known
        self._pace = pace
        self._on_read = on_read
        self._began = now()
        self._reads = fixity.reads_of(inventory, known.ark)
        self._unkept: list[ReadBackFile] = []
        self._kept_at = time.monotonic()

    def run(self) -> FixityCheck | None:
        try:
            damaged = self._damage()
            if damaged:
                self._forget(damaged)
                damaged = self._damage()
        except BaseException:
            self._keep()
            raise
        if damaged is None:
            self._keep()
            return None
        known = self._known
        files = {file.digest: file.size for version in known.versions for file in version.files}
        return FixityCheck(
            ark=known.ark,
            profile=known.versions[-1].profile,
            began=min((read.at for read in self._reads.values()), default=self._began),
            ended=now(),
            versions=len(known.versions),
            files=sum(len(version.files) for version in known.versions),
            bytes=sum(files.values()),
            damaged=tuple(damage for damage, _ in damaged),
        )

    def _damage(self) -> list[tuple[DamagedFile, str]] | None:
        """The damage, with the places of the damaged bytes; None if the reading was stopped."""
        known = self._known
        numbers = tuple(version.number for version in known.versions)
        try:
            reading = Reading(self._on_piece, self._pace.over, self._reads, self._on_file)
            custody = prove(known, numbers, self._storage, reading)
            described = self._storage.problems_of(known.ark, known.versions[-1].storage_url)
        except DamagedObject as damage:
            return [(DamagedFile(0, "", damage.message, _REMEDY), "")]
        if not custody.complete:
            return None
        return [*_damaged_files(custody), *((DamagedFile(0, "", text, _REMEDY), "") for text in described)]

    def _on_piece(self, size: int) -> None:
        self._on_read(size)
        self._pace.read(size)

    def _on_file(self, file: ReadBackFile) -> None:
        if file.problem or file.place in self._reads:
            return
        self._reads[file.place] = file
        self._unkept.append(file)
        if time.monotonic() - self._kept_at > KEEP_INTERVAL:
            self._keep()

    def _forget(self, damaged: list[tuple[DamagedFile, str]]) -> None:
        """Have the damaged bytes read again."""
        for _, place in damaged:
            self._reads.pop(place, None)

    def _keep(self) -> None:
        fixity.keep_reads(self._inventory, self._known.ark, self._unkept)
        self._unkept, self._kept_at = [], time.monotonic()


def _damaged_files(custody: Custody) -> list[tuple[DamagedFile, str]]:
    return [
        (
            DamagedFile(file.version, file.path, problem.what, problem.remedy),
            file.now.place if file.now else "",
        )
        for file in custody.files
        for problem in file.problems
    ]
