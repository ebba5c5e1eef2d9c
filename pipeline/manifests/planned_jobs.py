"""The jobs of a payload, in little memory: a batch may have more of them than a worker has room for."""

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import overload

from pipeline.fixity import Digest
from pipeline.records import PayloadType, Priority, Record, Text

BLOCK_JOBS = 200
"""Jobs that are compressed together: some 60 KB, which become 20 KB."""


class PlannedJob(Record):
    """One object to be made; values that are absent are those of the submission."""

    payload_url: str
    payload_type: PayloadType
    payload_name: Text
    digest: Digest | None = None
    size: int | None = None
    erc_who: Text = ""
    erc_what: Text = ""
    erc_when: Text = ""
    local_id: tuple[Text, ...] = ()
    primary_id: Text | None = None
    priority: Priority | None = None


@dataclass(frozen=True)
class Plan:
    jobs: Sequence[PlannedJob]
    sha256: str
    """Digest of the payload's content; without the priority, which an operator may change meanwhile."""


@dataclass(frozen=True)
class PackedJobs(Sequence[PlannedJob]):
    """Jobs that are unpacked when they are read; `priority` is that of all."""

    blocks: tuple[bytes, ...]
    total: int
    priority: int | None

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[PlannedJob]:
        return self._within(range(self.total))

    @overload
    def __getitem__(self, which: int) -> PlannedJob: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[PlannedJob, ...]: ...
    def __getitem__(self, which: int | slice) -> PlannedJob | tuple[PlannedJob, ...]:
        if isinstance(which, slice):
            return tuple(self._within(range(self.total)[which]))
        place = range(self.total)[which]
        return next(self._within(range(place, place + 1)))

    def _within(self, places: range) -> Iterator[PlannedJob]:
        """A block is unpacked once for these places, and no job beside them is made."""
        last, texts = -1, list[bytes]()
        priority = b"}" if self.priority is None else b',"priority":%d}' % self.priority
        for place in places:
            number, within = divmod(place, BLOCK_JOBS)
            if number != last:
                last, texts = number, zlib.decompress(self.blocks[number]).split(b"\n")
            yield PlannedJob.model_validate_json(texts[within][:-1] + priority)


def pack(jobs: Iterator[PlannedJob]) -> tuple[tuple[bytes, ...], int, str]:
    """The blocks of the jobs, their number, and the digest of their content."""
    digest, blocks, count = sha256(b"["), list[bytes](), 0
    while block := list(islice(jobs, BLOCK_JOBS)):
        comma = "," if blocks else ""
        digest.update(f"{comma}{','.join(map(_canonical, block))}".encode())
        texts = "\n".join(job.model_dump_json(exclude_defaults=True, exclude={"priority"}) for job in block)
        blocks.append(zlib.compress(texts.encode(), level=1))
        count += len(block)
    digest.update(b"]")
    return tuple(blocks), count, digest.hexdigest()


def _canonical(job: PlannedJob) -> str:
    """The same in every release: without default values, and with the payload's type as 0.1.0 spelled it."""
    values = job.model_dump(mode="json", exclude_defaults=True) | {"payload_type": job.payload_type.label}
    return json.dumps(values, sort_keys=True, separators=(",", ":"))
