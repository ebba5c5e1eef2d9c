"""The honest deposits: files, containers and objects by manifest, with bytes unique to each deposit."""

import random
from dataclasses import dataclass
from hashlib import sha512

from pipeline.records import SubmissionType
from tests.e2e.collection import File, put_batch, put_object
from tests.servers.http_source import HttpSource
from tests.support.packing import zipped

HOST = "127.0.0.2"
"""The honest depositors' host, on loopback."""

FILE_BYTES = 20_000


@dataclass(frozen=True)
class Deposit:
    name: str
    url: str
    kind: SubmissionType
    sha512: frozenset[str]
    """Digests of the files that must be in storage at the end."""


def prepare(count: int, chance: random.Random, source: HttpSource) -> list[Deposit]:
    makers = (_file, _container, _batch)
    return [makers[number % len(makers)](f"h{number}", chance, source) for number in range(count)]


def _file(name: str, chance: random.Random, source: HttpSource) -> Deposit:
    body = chance.randbytes(FILE_BYTES)
    return Deposit(name, source.put(f"/{name}.bin", body), SubmissionType.FILE, _digests(body))


def _container(name: str, chance: random.Random, source: HttpSource) -> Deposit:
    files = {f"folder/{n}.bin": chance.randbytes(FILE_BYTES) for n in range(3)}
    url = source.put(f"/{name}.zip", zipped(files))
    return Deposit(name, url, SubmissionType.CONTAINER, _digests(*files.values()))


def _batch(name: str, chance: random.Random, source: HttpSource) -> Deposit:
    files = [File(f"{n}.bin", chance.randbytes(FILE_BYTES)) for n in range(4)]
    urls = [put_object(source, f"{name}-{n}", files[2 * n : 2 * n + 2]) for n in range(2)]
    url = put_batch(source, urls, name)
    return Deposit(name, url, SubmissionType.BATCH_MANIFEST, _digests(*(file.body for file in files)))


def _digests(*bodies: bytes) -> frozenset[str]:
    return frozenset(sha512(body).hexdigest() for body in bodies)
