"""Proofs of custody: fixity checks that somebody asks for, with their results in the inventory."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from operations.objects import fixity
from operations.objects.fixity import CustodyProof, ProofState
from operations.site import Site
from pipeline import codes
from pipeline.errors import UsageRefused
from pipeline.inventory import fixity as asked_proofs
from pipeline.inventory.base import InventoryObject
from pipeline.principal import Role
from pipeline.records import SubmissionMode
from pipeline.settings import Settings
from tasks.app import make_context
from tasks.scheduled import fixity as work
from tasks.worker_context import Stop, WorkerContext
from tests.support import cli
from tests.support.errors import raises_code
from tests.support.polling import eventually
from tests.support.repository import Repository
from tests.support.stores import Store, flip, with_record
from tests.support.web import serving
from zkstate.connection.session import Session
from zkstate.errors import Missing

ANN, BOB = "token:ann", "token:bob"
CONTENT = "v1/content/producer/a.txt"


@pytest.fixture
def store(repository: Repository, session: Session, settings: Settings) -> Store:
    return with_record(repository, session, settings)


@pytest.fixture
def site(store: Store, session: Session) -> Site:
    return Site(store.repository.settings, session)


@pytest.fixture
def worker(store: Store) -> Iterator[WorkerContext]:
    opened = make_context(store.repository.settings)
    yield opened
    opened.drop_session()


def stored(store: Store, number: int = 1) -> InventoryObject:
    made = store.repository
    return made.described(made.recorded(made.job(number, {"a.txt": f"alpha {number}"})).ark)


def stored_twice(store: Store) -> InventoryObject:
    """An object with two versions."""
    made = store.repository
    ark = stored(store).ark
    update = made.job(2, {"b.txt": "beta"}, primary_id=ark, submission_mode=SubmissionMode.UPDATE)
    made.recorded(update)
    return made.described(ark)


def ended(site: Site, worker: WorkerContext, proof: CustodyProof, known: InventoryObject) -> CustodyProof:
    """As a worker leaves it; a run ends early if its session is in doubt."""
    for _ in range(5):
        worker.app.tasks["beat.proofs"]()
        proof = fixity.proof_of(site.inventory(), proof.id, known)
        if proof.ended is not None:
            return proof
    raise AssertionError(f"no run has ended {proof}")


def test_a_worker_reads_every_byte_and_the_result_outlives_the_web_process(
    site: Site, store: Store, worker: WorkerContext, session: Session
) -> None:
    known = stored(store)

    asked = fixity.start_proof(site, known, None, ANN)
    proof = ended(site, worker, asked, known)

    assert (asked.state, asked.version, asked.ahead) == (ProofState.WAITING, 1, 0)
    assert (proof.state, proof.message) == (ProofState.DONE, "")
    assert proof.custody is not None
    assert (proof.custody.agrees, proof.custody.versions) == (True, (1,))
    assert proof.bytes_read == proof.bytes_total > 0
    assert all(file.now and file.now.sha512 for file in proof.custody.files)
    another = Site(store.repository.settings, session)
    assert fixity.latest_proof(another.inventory(), known, 1) == proof
    assert store.repository.described(known.ark).fixity is not None


def test_a_version_has_one_proof_at_a_time_and_its_last_result_is_kept(
    site: Site, store: Store, worker: WorkerContext
) -> None:
    known = stored(store)
    first = fixity.start_proof(site, known, None, ANN)
    again = fixity.start_proof(site, known, 1, BOB)
    ended(site, worker, first, known)
    second = ended(site, worker, fixity.start_proof(site, known, 1, BOB), known)

    assert (again.id, second.id == first.id) == (first.id, False)
    assert fixity.latest_proof(site.inventory(), known, 1) == second
    with pytest.raises(Missing, match="start a new one"):
        fixity.proof_of(site.inventory(), first.id, known)


def test_proofs_wait_in_their_order_and_are_limited_for_one_and_for_all(
    site: Site, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_proofs, "OF_ONE", 2)
    monkeypatch.setattr(asked_proofs, "WAITING", 3)
    objects = [stored(store, number) for number in range(1, 6)]

    waiting = [fixity.start_proof(site, known, None, ANN) for known in objects[:2]]
    with raises_code(codes.TOO_MANY_PROOFS, match="proofs of 2 objects that you asked for"):
        fixity.start_proof(site, objects[2], None, ANN)
    fixity.start_proof(site, objects[3], None, BOB)
    with raises_code(codes.TOO_MANY_PROOFS, match="3 objects wait"):
        fixity.start_proof(site, objects[4], None, BOB)

    assert [proof.ahead for proof in waiting] == [0, 1]


def test_damage_that_a_proof_finds_is_in_its_result_and_is_an_event(
    site: Site, store: Store, worker: WorkerContext
) -> None:
    known = stored(store)
    store.change(known.ark, CONTENT, flip)

    proof = ended(site, worker, fixity.start_proof(site, known, None, ANN), known)

    assert proof.state is ProofState.DONE
    assert proof.custody is not None
    assert [file.path for file in proof.custody.files if file.problems] == ["producer/a.txt"]
    assert not proof.custody.agrees
    (event,) = store.repository.described(known.ark).events
    assert (event.outcome, event.damaged) == ("fail", 1)


def test_a_proof_of_a_storage_that_is_away_fails_and_says_why(
    site: Site, store: Store, worker: WorkerContext
) -> None:
    known = stored(store)
    worker.clients()
    proof = fixity.start_proof(site, known, None, ANN)
    folder: Path = store.repository.settings.storage
    folder.rename(folder.with_name("aside"))

    proof = ended(site, worker, proof, known)

    assert (proof.state, proof.custody) == (ProofState.FAILED, None)
    assert "mount its disk" in proof.message


def test_what_is_asked_for_while_a_run_reads_is_done_in_the_same_run(
    site: Site, store: Store, worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, other = stored(store, 1), stored(store, 2)
    asked: list[CustodyProof] = []

    def ask_once(outcome: object) -> None:
        if not asked:
            asked.append(fixity.start_proof(site, other, None, BOB))

    monkeypatch.setattr(work, "log_outcome", ask_once)
    ended(site, worker, fixity.start_proof(site, known, None, ANN), known)

    assert fixity.proof_of(site.inventory(), asked[0].id, other).state is ProofState.DONE


def test_an_interrupted_proof_continues_in_the_next_run(
    site: Site, store: Store, worker: WorkerContext
) -> None:
    known = stored(store)
    proof = fixity.start_proof(site, known, None, ANN)
    stopping = make_context(store.repository.settings)
    stopping.ask_to_stop(Stop.ALL)
    stopping.app.tasks["beat.proofs"]()
    stopping.drop_session()
    assert fixity.proof_of(site.inventory(), proof.id, known).ended is None

    assert ended(site, worker, proof, known).state is ProofState.DONE


def test_a_proof_is_that_of_its_object_and_of_a_version_that_is_there(site: Site, store: Store) -> None:
    known, other = stored(store, 1), stored(store, 2)
    with pytest.raises(UsageRefused):
        fixity.start_proof(site, known, 2, ANN)
    proof = fixity.start_proof(site, known, None, ANN)

    with pytest.raises(Missing):
        fixity.proof_of(site.inventory(), proof.id, other)
    assert fixity.latest_proof(site.inventory(), other, 1) is None


def test_one_reading_answers_all_proofs_of_an_object(
    site: Site, store: Store, worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_proofs, "OF_ONE", 1)
    known = stored_twice(store)
    first, second = (fixity.start_proof(site, known, number, ANN) for number in (1, 2))

    proofs = [ended(site, worker, proof, known) for proof in (first, second)]

    results = [proof.custody for proof in proofs if proof.custody]
    assert [(result.versions, result.agrees) for result in results] == [((1,), True), ((2,), True)]
    assert len({result.began for result in results}) == 1


@contextmanager
def at_work(worker: WorkerContext) -> Iterator[None]:
    """A worker that does what is asked for, until the end of the block."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.1):
            worker.app.tasks["beat.proofs"]()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_command_line_has_a_worker_prove_an_object_and_waits_for_the_result(
    site: Site, store: Store, worker: WorkerContext, tmp_path: Path
) -> None:
    known = stored_twice(store)
    with serving(site.settings) as web:
        viewer = web.caller(Role.VIEWER, name="reader")
        given = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": viewer.token}
        away = site.settings.model_copy(update={"zk_hosts": "127.0.0.1:1", "home": tmp_path / "away"})
        pending = fixity.start_proof(site, known, 2, ANN)
        with at_work(worker):
            done = cli.run(away, "object", known.ark, "--json", **given)
            every = cli.run(away, "object", known.ark, "--all-versions", "--json", **given)
            store.change(known.ark, CONTENT, flip)
            damaged = cli.run(away, "object", known.ark, "--version", "1", **given)
            store.change(known.ark, "inventory.json", lambda _: None)
            unlisted = cli.run(away, "object", known.ark, **given)

    assert (done.code, every.code, damaged.code, unlisted.code) == (0, 0, 4, 4), unlisted.err + damaged.err
    custody = done.json()["custody"]
    assert (custody["versions"], custody["read"], custody["complete"]) == ([2], True, True)
    assert datetime.fromisoformat(custody["began"]) >= pending.asked
    assert every.json()["custody"]["versions"] == [1, 2]
    assert {file["version"] for file in every.json()["custody"]["files"]} == {1, 2}
    assert "Custody is broken: 1 of" in damaged.out
    assert "could not be proved" in unlisted.err


def test_who_stops_waiting_for_a_proof_sees_what_was_not_read(
    site: Site, store: Store, tmp_path: Path
) -> None:
    known = stored(store)
    with serving(site.settings) as web:
        viewer = web.caller(Role.VIEWER, name="reader")
        given = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": viewer.token}
        away = site.settings.model_copy(update={"zk_hosts": "127.0.0.1:1", "home": tmp_path / "away"})
        with cli.start(away, "object", known.ark, **given) as waiting:
            eventually(lambda: fixity.latest_proof(site.inventory(), known, 1))
            waiting.send_signal(signal.SIGINT)
            out, _ = waiting.communicate(timeout=20)

    assert waiting.returncode == 130
    assert "Interrupted:" in out
