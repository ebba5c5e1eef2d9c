"""The jobs of a payload, in little memory: a batch may have more of them than a worker has room for."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

from pipeline.fixity import Digest
from pipeline.packed import BLOCK, Packed, packed_block
from pipeline.records import PayloadType, Priority, Record, Text


class PlannedJob(Record):
    """One object to be made; values that are absent are those of the submission."""

    payload_url: str
    payload_type: PayloadType
    payload_name: Text
    named_by_source: bool = False
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
class PackedJobs(Packed[PlannedJob]):
    """Jobs that are unpacked when they are read; `priority` is that of all."""

    priority: int | None = None

    def decoded(self, text: bytes) -> PlannedJob:
        if self.priority is not None:
            text = text[:-1] + b',"priority":%d}' % self.priority
        return PlannedJob.model_validate_json(text)


def pack(jobs: Iterator[PlannedJob]) -> tuple[tuple[bytes, ...], int, str]:
    """The blocks of the jobs, their number, and the digest of their content."""
    digest, blocks, count = sha256(b"["), list[bytes](), 0
    while block := list(islice(jobs, BLOCK)):
        comma = "," if blocks else ""
        digest.update(f"{comma}{','.join(map(_canonical, block))}".encode())
        blocks.append(
            packed_block(job.model_dump_json(exclude_defaults=True, exclude={"priority"}) for job in block)
        )
        count += len(block)
    digest.update(b"]")
    return tuple(blocks), count, digest.hexdigest()


def _canonical(job: PlannedJob) -> str:
    """The same in every release: without default values, and with the payload's type as 0.1.0 spelled it."""
    values = job.model_dump(mode="json", exclude_defaults=True) | {"payload_type": job.payload_type.label}
    return json.dumps(values, sort_keys=True, separators=(",", ":"))
