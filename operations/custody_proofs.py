"""Proofs of custody in the background: threads read the bytes of a version, and callers ask how far they are.

One `CustodyProofs` belongs to a process, and answers for the proofs of other processes that share theirs
through Redis. An interface starts a proof and asks for it until it has ended:

    proof = proofs.start(known, version, principal.identity)  # answers at once; TooManyProofs
    proof = proofs.get(proof.id, known)  # state, bytes_read of bytes_total, and at last custody
    proof = proofs.wait_ended(proof.id, known, 1.0)  # the same; small objects are proved at once
    proof = proofs.latest(known, version)  # without an id; None if there is no proof

The caller checks before both that the principal may see the object (`visibility.check_object_visible`). Any
version of any size can be proved: there is no limit of bytes, as nobody waits for an answer meanwhile.
`custody` of a proof that is done is what `objects.object_view` has when it reads storage.
"""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from operations.custody_proof import CustodyProof, ProofState
from operations.objects import versions_to_prove
from operations.shared_proofs import SharedProofs
from pipeline.errors import ArklineError, ErrorKind
from pipeline.inventory.base import InventoryObject
from pipeline.preservation.proof import Reading, prove, size_of
from pipeline.records import now
from pipeline.storage.base import Storage
from tasks.logs import log
from zkstate.errors import Missing

SHARED_EVERY = 1.0
"""Seconds between two reports of the proofs that have not ended to the other processes."""


@dataclass(frozen=True)
class ProofLimits:
    """The limits of one process."""

    at_once: int = 2
    """Proofs that read storage at the same time."""
    waiting: int = 50
    """Proofs that wait for one that ends."""
    of_one: int = 5
    """Proofs of one principal that have not ended."""
    results: int = 100
    """Ended proofs that are kept."""
    files: int = 20_000
    """Files of all ended proofs that are kept; the latest proof is kept with any number of files."""
    seconds: float = 3600.0
    """How long an ended proof is kept."""


class TooManyProofs(ArklineError):
    """As many proofs wait as the server or the caller may have; the same request may succeed later."""

    error_kind = ErrorKind.UNREACHABLE


class _Entry:
    """A proof, which its thread changes under the guard of `CustodyProofs`."""

    def __init__(self, proof: CustodyProof, asked_by: str) -> None:
        self.proof = proof
        self.asked_by = asked_by


class CustodyProofs:
    """The proofs of one process. Thread-safe.

    `open_storage` opens the storage of the inventory, in the thread of a proof. Without `shared` no other
    process knows of these proofs.
    """

    def __init__(
        self,
        open_storage: Callable[[], Storage],
        limits: ProofLimits | None = None,
        shared: SharedProofs | None = None,
    ) -> None:
        self._open_storage = open_storage
        self._shared = shared
        self._shared_at = 0.0
        self._limits = limits or ProofLimits()
        self._guard = threading.Condition()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._objects: dict[str, InventoryObject] = {}
        self._running = 0
        self._closed = threading.Event()

    def start(self, known: InventoryObject, version: int | None, asked_by: str) -> CustodyProof:
        """A new proof of the version (None: the current one), or the one that has not ended yet.

        UsageRefused if there is no such version; TooManyProofs.
        """
        (number,) = versions_to_prove(known, version, every=False)
        size = size_of(known, (number,))
        elsewhere = self._of_others(known, number)
        if elsewhere is not None and elsewhere.ended is None:
            return elsewhere
        proof = self._start(known, number, size, asked_by)
        self._share(proof)
        return proof

    def _start(self, known: InventoryObject, number: int, size: int, asked_by: str) -> CustodyProof:
        with self._guard:
            unfinished = self._unfinished()
            for entry in unfinished:
                if (entry.proof.ark, entry.proof.version) == (known.ark, number):
                    return self._seen(entry)
            self._check_room(unfinished, asked_by)
            proof = CustodyProof(
                id=secrets.token_hex(8), ark=known.ark, version=number, asked=now(), bytes_total=size
            )
            entry = self._entries[proof.id] = _Entry(proof, asked_by)
            self._objects[proof.id] = known
            self._fill()
            return self._seen(entry)

    def get(self, proof_id: str, known: InventoryObject) -> CustodyProof:
        """Missing if there is no such proof of this object, any more or at all."""
        with self._guard:
            self._forget()
            entry = self._entries.get(proof_id)
            proof = self._seen(entry) if entry else None
        if proof is None and self._shared is not None:
            proof = self._shared.find(proof_id)
        if proof is None or proof.ark != known.ark:
            raise Missing(
                f"there is no proof {proof_id} of {known.ark}: a proof is kept for an hour, and ends with "
                "the server that reads the bytes; start a new one"
            )
        return proof

    def latest(self, known: InventoryObject, version: int | None = None) -> CustodyProof | None:
        """The latest proof of the version (None: the current one)."""
        (number,) = versions_to_prove(known, version, every=False)
        own = self._latest_own(known, number)
        if own is not None and own.ended is None:
            return own
        proofs = [proof for proof in (own, self._of_others(known, number)) if proof is not None]
        return max(proofs, key=lambda proof: proof.asked, default=None)

    def _latest_own(self, known: InventoryObject, number: int) -> CustodyProof | None:
        with self._guard:
            self._forget()
            for entry in reversed(self._entries.values()):
                if (entry.proof.ark, entry.proof.version) == (known.ark, number):
                    return self._seen(entry)
        return None

    def _of_others(self, known: InventoryObject, number: int) -> CustodyProof | None:
        """The latest shared proof of the version; None if it is one of this process."""
        proof = self._shared.latest(known.ark, number) if self._shared else None
        return None if proof is None or proof.id in self._entries else proof

    def _share(self, *proofs: CustodyProof) -> None:
        """Outside of the guard: Redis may be slow."""
        if self._shared is not None:
            for proof in proofs:
                self._shared.publish(proof)

    def wait_ended(self, proof_id: str, known: InventoryObject, seconds: float) -> CustodyProof:
        """As `get`, once the proof has ended or the seconds are over."""
        with self._guard:
            entry = self._entries.get(proof_id)
            if entry is not None:
                self._guard.wait_for(lambda: entry.proof.ended is not None, seconds)
        return self.get(proof_id, known)

    def close(self) -> None:
        """Stop every proof at its next piece; none starts afterwards."""
        self._closed.set()

    def _check_room(self, unfinished: list[_Entry], asked_by: str) -> None:
        waiting = sum(entry.proof.state is ProofState.WAITING for entry in unfinished)
        own = sum(entry.asked_by == asked_by for entry in unfinished)
        if self._closed.is_set() or waiting >= self._limits.waiting:
            raise TooManyProofs(f"{waiting} proofs wait already: ask again when some have ended")
        if own >= self._limits.of_one:
            raise TooManyProofs(f"{own} proofs that you asked for have not ended: ask again when some have")

    def _unfinished(self) -> list[_Entry]:
        return [entry for entry in self._entries.values() if entry.proof.ended is None]

    def _seen(self, entry: _Entry) -> CustodyProof:
        if entry.proof.state is not ProofState.WAITING:
            return entry.proof
        waiting = [other for other in self._unfinished() if other.proof.state is ProofState.WAITING]
        return entry.proof.model_copy(update={"ahead": waiting.index(entry)})

    def _fill(self) -> None:
        """Start proofs that wait, while there is room for them."""
        for entry in self._unfinished():
            if self._running >= self._limits.at_once or self._closed.is_set():
                return
            if entry.proof.state is ProofState.WAITING:
                self._running += 1
                entry.proof = entry.proof.model_copy(update={"state": ProofState.RUNNING, "began": now()})
                arguments = (entry, self._objects.pop(entry.proof.id))
                # a daemon: a disk that does not answer must not keep the process from ending
                threading.Thread(target=self._run, args=arguments, name="custody", daemon=True).start()

    def _run(self, entry: _Entry, known: InventoryObject) -> None:
        changes: dict[str, object]
        try:
            changes = self._proved(entry, known)
        except ArklineError as error:
            changes = {"state": ProofState.FAILED, "message": str(error)}
        except Exception as error:  # noqa: BLE001 - the thread has no caller: proof and log have it
            log().error("custody proof failed", ark=entry.proof.ark, error=str(error), exc_info=error)
            message = "an unexpected error, which is in the server's log"
            changes = {"state": ProofState.FAILED, "message": message}
        with self._guard:
            ended = entry.proof = entry.proof.model_copy(update={**changes, "ended": now()})
            self._entries.move_to_end(entry.proof.id)  # in the order in which they end
            self._running -= 1
            self._forget()
            self._fill()
            self._guard.notify_all()
        self._share(ended)

    def _proved(self, entry: _Entry, known: InventoryObject) -> dict[str, object]:
        numbers = (entry.proof.version,)
        reading = Reading(lambda size: self._count(entry, size), self._closed.is_set)
        custody = prove(known, numbers, self._open_storage(), reading)
        if not custody.complete:
            return {"state": ProofState.FAILED, "message": "the server stopped before all bytes were read"}
        return {"state": ProofState.DONE, "custody": custody}

    def _count(self, entry: _Entry, size: int) -> None:
        with self._guard:
            read = entry.proof.bytes_read + size
            entry.proof = entry.proof.model_copy(update={"bytes_read": read})
            if time.monotonic() - self._shared_at < SHARED_EVERY:
                return
            self._shared_at = time.monotonic()
            unfinished = [self._seen(other) for other in self._unfinished()]
        self._share(*unfinished)

    def _forget(self) -> None:
        """Remove the oldest results, beyond the limits."""
        ended = [entry for entry in self._entries.values() if entry.proof.ended is not None]
        oldest = now() - timedelta(seconds=self._limits.seconds)
        files = sum(_files(entry) for entry in ended)
        for index, entry in enumerate(ended):
            latest = index == len(ended) - 1
            too_many = len(ended) - index > self._limits.results
            too_large = files > self._limits.files and not latest
            if not (too_many or too_large or _ended(entry) < oldest):
                break
            files -= _files(entry)
            del self._entries[entry.proof.id]


def _files(entry: _Entry) -> int:
    return len(entry.proof.custody.files) if entry.proof.custody else 0


def _ended(entry: _Entry) -> datetime:
    return entry.proof.ended or now()
