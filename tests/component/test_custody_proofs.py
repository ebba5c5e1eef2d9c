"""Proofs of custody in the background, of objects in a real storage root."""

import threading
from collections.abc import Iterator

import pytest

from operations.custody_proof import CustodyProof, ProofState
from operations.custody_proofs import CustodyProofs, ProofLimits, TooManyProofs
from pipeline.errors import UsageRefused
from pipeline.inventory.base import InventoryObject
from pipeline.storage.base import Storage
from tests.component.test_custody import content, damage
from tests.support.repository import Repository
from zkstate.errors import Missing

ANN, BOB = "token:ann", "token:bob"


class Gate:
    """A storage that is opened for the first proof when the test says so."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self.opened = threading.Event()

    def storage(self) -> Storage:
        assert self.opened.wait(20)
        return self._repository.storage


@pytest.fixture
def gate(repository: Repository) -> Iterator[Gate]:
    gate = Gate(repository)
    yield gate
    gate.opened.set()


def stored(repository: Repository, number: int) -> InventoryObject:
    return repository.described(repository.recorded(repository.job(number)).ark)


def ended(proofs: CustodyProofs, proof: CustodyProof, known: InventoryObject) -> CustodyProof:
    proof = proofs.wait_ended(proof.id, known, 20)
    assert proof.ended is not None
    return proof


def test_a_proof_reads_every_byte_of_the_current_version(repository: Repository) -> None:
    known = stored(repository, 1)
    proofs = CustodyProofs(lambda: repository.storage)

    proof = ended(proofs, proofs.start(known, None, ANN), known)

    assert (proof.state, proof.version, proof.message) == (ProofState.DONE, 1, "")
    assert proof.custody is not None
    assert proof.custody.agrees
    assert proof.bytes_read == proof.bytes_total == proof.custody.bytes_read > 0
    assert proofs.latest(known) == proof


def test_a_proof_of_a_damaged_file_is_done_and_disagrees(repository: Repository) -> None:
    version = repository.recorded(repository.job(1))
    damage(content(repository, version, "producer/a.txt"))
    known = repository.described(version.ark)
    proofs = CustodyProofs(lambda: repository.storage)

    proof = ended(proofs, proofs.start(known, 1, ANN), known)

    assert proof.state is ProofState.DONE
    assert proof.custody is not None
    assert not proof.custody.agrees


def test_while_a_proof_runs_the_same_version_gets_the_same_proof(repository: Repository, gate: Gate) -> None:
    known = stored(repository, 1)
    proofs = CustodyProofs(gate.storage)
    first = proofs.start(known, None, ANN)

    again = proofs.start(known, 1, BOB)
    gate.opened.set()
    ended(proofs, first, known)

    assert (first.state, again.id) == (ProofState.RUNNING, first.id)
    assert proofs.start(known, 1, BOB).id != first.id


def test_proofs_beyond_those_at_once_wait_in_line_and_the_line_ends(
    repository: Repository, gate: Gate
) -> None:
    objects = [stored(repository, number) for number in range(1, 5)]
    proofs = CustodyProofs(gate.storage, ProofLimits(at_once=1, waiting=2))

    first, second, third = (proofs.start(known, None, ANN) for known in objects[:3])
    with pytest.raises(TooManyProofs, match="2 proofs wait"):
        proofs.start(objects[3], None, BOB)
    gate.opened.set()

    assert [first.state, second.state, third.state] == [
        ProofState.RUNNING,
        ProofState.WAITING,
        ProofState.WAITING,
    ]
    assert (second.ahead, third.ahead) == (0, 1)
    assert ended(proofs, third, objects[2]).state is ProofState.DONE


def test_one_caller_cannot_take_the_whole_line(repository: Repository, gate: Gate) -> None:
    objects = [stored(repository, number) for number in range(1, 4)]
    proofs = CustodyProofs(gate.storage, ProofLimits(at_once=1, of_one=2))
    for known in objects[:2]:
        proofs.start(known, None, ANN)

    with pytest.raises(TooManyProofs, match="you asked for"):
        proofs.start(objects[2], None, ANN)

    assert proofs.start(objects[2], None, BOB).state is ProofState.WAITING


def test_a_proof_that_cannot_read_storage_fails_and_says_why(repository: Repository) -> None:
    known = stored(repository, 1)
    for name in ("inventory.json", "inventory.json.sha512"):
        (repository.ocfl.root.object(known.ark) / name).unlink()
    proofs = CustodyProofs(lambda: repository.storage)

    proof = ended(proofs, proofs.start(known, None, ANN), known)

    assert proof.state is ProofState.FAILED
    assert "has no inventory.json" in proof.message
    assert proof.custody is None


def test_the_end_of_the_process_ends_a_proof_and_starts_none(repository: Repository, gate: Gate) -> None:
    first, second = stored(repository, 1), stored(repository, 2)
    proofs = CustodyProofs(gate.storage, ProofLimits(at_once=1))
    running, waiting = proofs.start(first, None, ANN), proofs.start(second, None, ANN)

    proofs.close()
    gate.opened.set()

    assert ended(proofs, running, first).state is ProofState.FAILED
    assert proofs.get(waiting.id, second).state is ProofState.WAITING
    with pytest.raises(TooManyProofs):
        proofs.start(first, None, ANN)


@pytest.mark.parametrize("limits", [ProofLimits(results=1), ProofLimits(files=1)], ids=["number", "files"])
def test_the_oldest_result_is_forgotten_first(repository: Repository, limits: ProofLimits) -> None:
    known = stored(repository, 1)
    proofs = CustodyProofs(lambda: repository.storage, limits)
    first = ended(proofs, proofs.start(known, None, ANN), known)

    second = ended(proofs, proofs.start(known, None, ANN), known)

    assert proofs.get(second.id, known) == second
    with pytest.raises(Missing, match="start a new one"):
        proofs.get(first.id, known)


def test_a_result_is_kept_for_a_limited_time(repository: Repository, gate: Gate) -> None:
    known = stored(repository, 1)
    proofs = CustodyProofs(gate.storage, ProofLimits(seconds=0))
    proof = proofs.start(known, None, ANN)
    gate.opened.set()

    with pytest.raises(Missing):
        proofs.wait_ended(proof.id, known, 20)

    assert proofs.latest(known) is None


def test_a_proof_is_of_a_version_that_exists_and_known_for_its_object_only(repository: Repository) -> None:
    known, other = stored(repository, 1), stored(repository, 2)
    proofs = CustodyProofs(lambda: repository.storage)

    with pytest.raises(UsageRefused, match="no version 2"):
        proofs.start(known, 2, ANN)
    proof = proofs.start(known, None, ANN)

    with pytest.raises(Missing):
        proofs.get(proof.id, other)
    ended(proofs, proof, known)
