"""The deposits of a run and their expected results; a seed always gives the same deposits."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.records import SubmissionType
from plugins.clamav.samples import eicar
from tests.e2e.collection import manifest
from tests.servers.http_source import HttpSource
from tests.support.packing import zipped
from tools.chaos.fakes import FAR
from tools.chaos.profiles import CHECKED, PROFILE, REVIEWED, SCANNED

PLANTED = 0.03
"""Fraction of objects with a planted error: these, those with a virus that stops them, and those that are
rejected must fail, and no others."""

INFECTED = 4
"""In a collection with checks, the first object of a deposit and every fourth after it have a virus."""

REJECTED = 3
"""In a collection with reviews, every third object is rejected."""

VIRUS = "virus"
REJECTION = "review"
"""Errors of an object that the repository finds, or a person."""

AGAIN = 0.08
"""Fraction of objects that reuse an earlier local id: a second version of the same object."""

FAR_PART = 0.15
"""Fraction of deposits whose content is on the host that is dead or slow at times."""

SLOW_MANIFEST = 0.4
"""Fraction of batch manifests that take about two seconds: long enough to interrupt a split."""

_PROFILES = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-"
_OBJECT, _BATCH = f"{_PROFILES}ingest-manifest", f"{_PROFILES}batch-manifest"


@dataclass(frozen=True)
class DepositedObject:
    """One object of a batch, identified by its payload's path."""

    path: str
    files: dict[str, frozenset[str]]
    """Name below producer/ -> the sha512 values that it may have."""
    local_id: str = ""
    planted: str = ""
    """The planted error; empty if the object must be stored."""
    profile: str = PROFILE
    infected: frozenset[str] = frozenset()
    """Names of the files with a virus."""


@dataclass(frozen=True)
class Deposit:
    """One submission, `at` seconds after the start."""

    at: float
    key: str
    kind: SubmissionType
    path: str
    objects: tuple[DepositedObject, ...]

    @property
    def profile(self) -> str:
        return self.objects[0].profile


@dataclass
class Collection:
    """All deposits of a run, served by `source`."""

    deposits: list[Deposit] = field(default_factory=list)
    second_bodies: dict[str, bytes] = field(default_factory=dict)
    """Path of a file without a declared digest -> what its source serves after the change."""


class Depositor:
    """Creates the deposits of a seed and puts their pages on the source."""

    def __init__(self, seed: int, source: HttpSource) -> None:
        self._chance = random.Random(f"deposits {seed}")
        self._source = source
        self._collection = Collection()
        self._known: list[str] = []
        self._objects = 0
        self._profile = PROFILE
        """Of the deposit that is being created."""

    def make(self, jobs: int, length: float, profiles: Sequence[str] = (PROFILE,)) -> Collection:
        """Create `jobs` objects in batches of many sizes, submitted over `length` seconds.

        The deposits use the profiles in turns.
        """
        planted = {
            number: ("digest", "missing", "manifest")[number % 3]
            for number in self._chance.sample(range(jobs), max(1, round(jobs * PLANTED)))
        }
        sizes = self._sizes(jobs)
        moments = sorted(self._chance.uniform(0, length) for _ in sizes)
        moments[0] = 0.0
        for number, (size, at) in enumerate(zip(sizes, moments, strict=True)):
            far = self._chance.random() < FAR_PART
            name = f"{FAR[1:]}{number}" if far else f"d{number}"
            self._profile = profiles[number % len(profiles)]
            self._deposit(name, size, round(at, 2), planted)
        return self._collection

    def _sizes(self, jobs: int) -> list[int]:
        sizes: list[int] = []
        while (left := jobs - sum(sizes)) > 0:
            single = self._chance.random() < 0.35
            sizes.append(1 if single else min(left, self._chance.randint(2, 14)))
        return sizes

    def _deposit(self, name: str, size: int, at: float, planted: dict[int, str]) -> None:
        first = self._objects
        self._objects += size
        if self._profile == REVIEWED:
            rejected = range(-first % REJECTED, size, REJECTED)
            planted = {first + n: REJECTION for n in rejected} | planted
        if size == 1 and planted.get(first, REJECTION) == REJECTION:
            kind, deposited = self._single(name, planted.get(first, ""))
            path = deposited.path
            objects: tuple[DepositedObject, ...] = (deposited,)
        else:
            kind = SubmissionType.BATCH_MANIFEST
            used: set[str] = set()
            objects = tuple(
                self._object(f"{name}-{n}", planted.get(first + n, ""), used, infected=n % INFECTED == 0)
                for n in range(size)
            )
            path = f"/{name}.checkm"
            rows = [
                f"{self._source.url(deposited.path)} |  |  |  |  | {deposited.path[1:]} "
                f"|  | {deposited.local_id}"
                f" | A. Maker | Object {n} | 2020"
                for n, deposited in enumerate(objects)
            ]
            text = manifest(_BATCH, rows)
            slow = self._chance.random() < SLOW_MANIFEST
            how = {"pause": 0.2, "piece": max(1, len(text) // 10)} if slow else {}
            self._source.put(path, text, **how)
            # only earlier deposits may be repeated, otherwise the order would decide who mints
            self._known += [t.local_id for t in objects if not t.planted]
        self._collection.deposits.append(Deposit(at, name, kind, path, objects))

    def _single(self, name: str, planted: str) -> tuple[SubmissionType, DepositedObject]:
        form = self._chance.choice(("file", "file", "container", "object"))
        if form == "object":
            kind = SubmissionType.OBJECT_MANIFEST
            return kind, self._object(f"{name}-0", planted, set(), local=False, infected=True)
        virus = eicar() if self._profile in CHECKED else b""
        if form == "container":
            files = {f"c{n}.bin": self._body() for n in range(3)}
            files["c0.bin"] += virus
            path = f"/{name}.zip"
            self._source.put(path, zipped(files), **self._fault())
            digests = {file: _digests(body) for file, body in files.items()}
            return SubmissionType.CONTAINER, self._deposited(path, digests, planted, infected="c0.bin")
        body = self._body()
        path = f"/{name}.bin"
        self._collection.second_bodies[path] = body[: len(body) * 2 // 3] + b"changed" + virus
        self._source.put(path, body + virus, **self._fault())
        either = {f"{name}.bin": _digests(body + virus, self._collection.second_bodies[path])}
        return SubmissionType.FILE, self._deposited(path, either, planted, infected=f"{name}.bin")

    def _deposited(
        self,
        path: str,
        files: dict[str, frozenset[str]],
        planted: str,
        local_id: str = "",
        *,
        infected: str = "",
    ) -> DepositedObject:
        """`infected`: the file with the virus, in a collection with checks."""
        names = frozenset({infected} if infected and self._profile in CHECKED else ())
        planted = planted or (VIRUS if names and self._profile == SCANNED else "")
        return DepositedObject(path, files, local_id, planted, self._profile, names)

    def _object(
        self, name: str, planted: str, used: set[str], *, local: bool = True, infected: bool = False
    ) -> DepositedObject:
        bodies = {f"f{n}.bin": self._body() for n in range(self._chance.randint(1, 3))}
        infected = infected and self._profile in CHECKED
        if infected:
            bodies["f0.bin"] += eicar()
            planted = planted or (VIRUS if self._profile == SCANNED else "")
        rows = []
        for number, (file, body) in enumerate(bodies.items()):
            path = f"/{name}/{file}"
            missing = planted == "missing" and number == 0
            url = self._source.url(path) if missing else self._source.put(path, body, **self._fault())
            wrong = planted == "digest" and number == 0
            digest = "0" * 64 if wrong else hashlib.sha256(body).hexdigest()
            rows.append(f"{url} | sha256 | {digest} | {len(body)} |  | {file} |")
        text = b"#%checkm_0.7\nno manifest" if planted == "manifest" else manifest(_OBJECT, rows)
        path = f"/{name}.checkm"
        self._source.put(path, text, **self._fault(small=True))
        files = {file: _digests(body) for file, body in bodies.items()}
        local_id = self._local_id(name, planted, used) if local else ""
        return self._deposited(path, files, planted, local_id, infected="f0.bin" if infected else "")

    def _local_id(self, name: str, planted: str, used: set[str]) -> str:
        free = [known for known in self._known if known not in used]
        again = not planted and free and self._chance.random() < AGAIN
        local_id = self._chance.choice(free) if again else name
        used.add(local_id)
        return local_id

    def _body(self) -> bytes:
        large = self._chance.random() < 0.03
        size = self._chance.randint(1_000_000, 2_500_000) if large else self._chance.randint(200, 60_000)
        return self._chance.randbytes(size)

    def _fault(self, *, small: bool = False) -> dict[str, object]:
        """How a page is served: most well, some slowly, some failing at first."""
        chance = self._chance.random()
        if chance < 0.06:
            return {"status": 503, "status_times": 1, "retry_after": "1"}
        if chance < 0.10:
            return {"status": 429, "status_times": 1, "retry_after": "1"}
        if small:
            return {}
        if chance < 0.18:
            return {"cut_after": 150, "cuts": 1}
        if chance < 0.60:
            return {"pause": 0.2, "piece": 8192}
        return {}


def _digests(*bodies: bytes) -> frozenset[str]:
    return frozenset(hashlib.sha512(body).hexdigest() for body in bodies)
