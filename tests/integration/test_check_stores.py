"""`arkline check`: what record, storage and inventory know alone, and what of it is repaired."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from entrypoints.cli import exit_codes
from operations.checks.check import CheckView, check
from operations.checks.deployment import initialize
from operations.checks.differences import StoreProblem
from operations.objects.objects import timeline
from operations.run import Run
from operations.site import Site
from pipeline.errors import Action, Remedy
from pipeline.fixity import OnRead, ReadBackFile
from pipeline.inventory.archive import tombstone
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.recording import REBUILT
from pipeline.inventory.sql import open_inventory
from pipeline.records import Identifiers, Job, SubmissionMode
from pipeline.settings import Settings
from pipeline.states import JobState
from pipeline.storage.ocfl import objects, reading
from pipeline.storage.ocfl.objects import StoredObject
from tests.servers.proxy import Proxy
from tests.support import cli, planting
from tests.support.operators import ANN
from tests.support.repository import Repository
from tests.support.stores import STORES, Store, with_record
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.errors import Corrupt
from zkstate.fleet import counters, holds
from zkstate.record import batches, jobs, space

INGEST = "v1/content/system/mrt-ingest.txt"


@pytest.fixture(params=STORES)
def store(
    request: pytest.FixtureRequest,
    repository: Repository,
    session: Session,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Store:
    return in_record(repository, session, settings, request, tmp_path, monkeypatch)


@pytest.fixture
def on_disk(repository: Repository, session: Session, settings: Settings) -> Store:
    return prepared(with_record(repository, session, settings), session)


def in_record(
    repository: Repository,
    session: Session,
    settings: Settings,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    patch: pytest.MonkeyPatch,
) -> Store:
    bucket = None
    if request.param == "bucket":
        bucket = request.getfixturevalue("s3_server").bucket(tmp_path)
    return prepared(with_record(repository, session, settings, bucket, patch), session)


def prepared(store: Store, session: Session) -> Store:
    """To the record, the numbers of the tests' batches and ARKs were given."""
    batches.submit(session, planting.submission())
    counters.raise_to(session, counters.minted("99999", "fk4"), 100)
    return store


def a_key(number: int) -> str:
    return f"{number:032x}"


def deposited(store: Store, number: int, **facts: object) -> str:
    """The ARK of a recorded object."""
    job = store.repository.job(number, {"a.txt": f"alpha {number}"}, key=a_key(number), **facts)
    return store.repository.recorded(job).ark


def compared(session: Session, store: Store, *, repair: bool = False) -> CheckView:
    return check(Site(store.repository.settings, session), ANN, reason="because", repair=repair)


def lose_inventory(session: Session, store: Store) -> None:
    """The inventory starts empty again, with the deployment id."""
    store.repository.lose_inventory()
    initialize(Site(store.repository.settings, session), missing=True)


def remembered(known: InventoryObject) -> InventoryObject:
    """The object without what storage does not have."""
    versions = tuple(
        replace(
            version,
            downloaded=None,
            verified=None,
            recorded=None,
            files=tuple(replace(file, provenance=None) for file in version.files),
        )
        for version in known.versions
    )
    return replace(known, versions=versions, events=(), fixity=None)


def test_stores_that_agree_have_no_difference(session: Session, store: Store) -> None:
    deposited(store, 1)

    view = compared(session, store)

    assert view.counts == {}
    assert view.listed
    assert view.complete
    assert view.compared == 2


def test_entries_of_a_lost_inventory_are_made_again_from_storage(session: Session, store: Store) -> None:
    own = store.repository
    arks = [deposited(store, 1, local_id=("a;b", "c")), deposited(store, 2, note="fragile")]
    update = own.job(
        3, {"b.txt": "beta"}, key=a_key(3), local_id=("c",), submission_mode=SubmissionMode.UPDATE
    )
    assert own.recorded(update).ark == arks[0]
    before = [remembered(own.described(ark)) for ark in arks]
    lose_inventory(session, store)

    dry = compared(session, store)
    untouched = own.inventory.describe_object(arks[0])
    repaired = compared(session, store, repair=True)
    again = compared(session, store)

    assert dry.counts[StoreProblem.NOT_ENTERED] == 3
    assert untouched is None
    assert repaired.left == 0
    assert repaired.repaired[StoreProblem.NOT_ENTERED] == 3
    assert [remembered(own.described(ark)) for ark in arks] == before
    assert again.counts == {}
    event, _ = (event for event in timeline(own.inventory, own.described(arks[0])) if event.type == REBUILT)
    assert (event.outcome, event.agent) == ("pass", "arkline ann@desk")
    assert "made again from storage" in event.detail
    assert own.inventory.arks_of("ark:/99999/owner", ("a;b", "c")) == {"a;b": arks[0], "c": arks[0]}


def test_a_repair_is_in_the_journal_with_its_sum(session: Session, on_disk: Store) -> None:
    deposited(on_disk, 1)
    lose_inventory(session, on_disk)

    compared(session, on_disk)
    assert holds.actions(session) == ()
    compared(session, on_disk, repair=True)

    began, ended = holds.actions(session)
    assert (began.action, began.by, began.reason, began.target) == ("reconcile", "ann@desk", "because", "")
    assert "not-entered 1" in ended.target


def in_recording(session: Session, store: Store, *, local_id: tuple[str, ...] = ()) -> Job:
    """A job in recording, whose version is stored and not entered."""
    return stored_by(session, store, planting.job_in(session, JobState.RECORDING), local_id)


def failed_after_storing(session: Session, store: Store) -> Job:
    """A job that failed in processing after its version was stored, as when an operator cancels it."""
    return stored_by(session, store, planting.job_in(session, JobState.FAILED, JobState.DOWNLOADING))


def stored_by(session: Session, store: Store, job: Job, local_id: tuple[str, ...] = ()) -> Job:
    number = int(job.jid.removeprefix("jid"))
    configuration = job.configuration
    made = store.repository.job(number, {"a.txt": "in flight"}, key=configuration.key, local_id=local_id)
    stored = store.repository.work(made)
    known = Identifiers(primary_id=stored.ark, local_id=local_id, assigned=True)
    session.zk.set(f"/jobs/{job.jid}/identifiers", known.model_dump_json().encode())
    return jobs.load(session, job.jid)


def test_a_version_that_its_job_has_not_entered_yet_is_no_difference(
    session: Session, on_disk: Store
) -> None:
    in_recording(session, on_disk)

    assert compared(session, on_disk, repair=True).counts == {}


def test_a_stored_version_of_a_failed_job_is_named_and_a_repair_reads_it_back_and_enters_it(
    session: Session, store: Store
) -> None:
    job = failed_after_storing(session, store)

    dry = compared(session, store)
    repaired = compared(session, store, repair=True)

    assert dry.counts == {StoreProblem.NOT_ENTERED: 1}
    (difference,) = dry.differences
    assert (difference.jid, difference.version, difference.job_failed) == (job.jid, 1, True)
    assert repaired.repaired == {StoreProblem.NOT_ENTERED: 1}
    (version,) = store.repository.described(difference.ark).versions
    assert (version.jid, version.verified is not None) == (job.jid, True)
    assert compared(session, store).counts == {}


def test_bytes_that_versions_share_are_read_once(
    session: Session, on_disk: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    read_back = objects.read_back_file

    def counted(stored: StoredObject, path: str, on_read: OnRead) -> ReadBackFile:
        read.append(path)
        return read_back(stored, path, on_read)

    own = on_disk.repository
    ark = deposited(on_disk, 1, local_id=("a",))
    for number in (2, 3):
        later = {"b.txt": f"beta {number}"}
        update = own.job(
            number, later, key=a_key(number), local_id=("a",), submission_mode=SubmissionMode.UPDATE
        )
        assert own.recorded(update).ark == ark
    on_disk.change(ark, "v1/content/producer/a.txt", lambda data: b"?" + data[1:])
    monkeypatch.setattr(reading, "read_back_file", counted)

    view = check(Site(own.settings, session), ANN, content=True)

    assert sorted(read) == sorted(set(read))
    assert [(one.version, one.gap) for one in view.differences] == [
        (number, StoreProblem.DAMAGED) for number in (1, 2, 3)
    ]


def test_a_damaged_version_of_a_failed_job_is_not_entered(session: Session, on_disk: Store) -> None:
    job = failed_after_storing(session, on_disk)
    ark = job.identifiers.primary_id
    assert ark is not None
    on_disk.change(ark, "v1/content/producer/a.txt", lambda data: b"?" + data[1:])

    view = compared(session, on_disk, repair=True)

    assert (view.counts, view.left) == ({StoreProblem.NOT_ENTERED: 1}, 1)
    assert "is damaged" in view.differences[0].reason
    assert on_disk.repository.inventory.describe_object(ark) is None


def test_the_command_names_a_stored_version_of_a_failed_job_with_the_resume_that_completes_it(
    session: Session, on_disk: Store
) -> None:
    job = failed_after_storing(session, on_disk)

    done = cli.run(on_disk.repository.settings, "check")

    assert done.code == 1, done.err
    assert f"{job.jid}: the job failed; `arkline resume {job.jid}` completes it" in done.out


def test_the_names_of_a_job_in_flight_are_reserved_in_a_restored_inventory(
    session: Session, on_disk: Store
) -> None:
    job = in_recording(session, on_disk, local_id=("x",))
    lose_inventory(session, on_disk)

    view = compared(session, on_disk, repair=True)

    assert view.repaired[StoreProblem.NOT_RESERVED] == 1
    assert StoreProblem.NOT_ENTERED not in view.counts
    inventory = on_disk.repository.inventory
    assert inventory.arks_of("ark:/99999/owner", ("x",)) == {"x": job.identifiers.primary_id}
    assert inventory.ark_of(job) == job.identifiers.primary_id
    assert compared(session, on_disk).counts == {}


def test_a_job_that_had_entered_its_version_does_not_enter_it_again_so_it_is_repaired(
    session: Session, on_disk: Store
) -> None:
    job = in_recording(session, on_disk)
    planting.complete(session, job)

    view = compared(session, on_disk, repair=True)

    assert view.repaired == {StoreProblem.NOT_ENTERED: 1}


def test_a_version_of_a_deleted_job_is_named_and_stays(session: Session, on_disk: Store) -> None:
    own = on_disk.repository
    job = own.job(1, key=a_key(1))
    stored = own.work(job)
    tombstone(own.inventory, job, by="operator", reason="")

    view = compared(session, on_disk, repair=True)

    assert view.counts == {StoreProblem.DELETED_JOB: 1}
    assert (view.differences[0].ark, view.differences[0].jid) == (stored.ark, "jid0000000001")
    assert own.inventory.describe_object(stored.ark) is None


def without_job(data: bytes) -> bytes:
    return data.replace(b"jid=jid0000000001", b"by another program")


def test_a_version_of_another_program_is_named_and_stays(session: Session, store: Store) -> None:
    own = store.repository
    stored = own.work(own.job(1))
    store.change(stored.ark, "inventory.json", without_job)

    view = compared(session, store, repair=True)

    assert view.counts == {StoreProblem.NO_JOB: 1}


def test_a_version_whose_description_is_incomplete_is_named_with_the_reason(
    session: Session, store: Store
) -> None:
    ark = deposited(store, 1)
    lose_inventory(session, store)
    store.change(ark, INGEST, lambda _: None)

    view = compared(session, store, repair=True)

    assert view.counts[StoreProblem.UNDESCRIBED] == 1
    assert "mrt-ingest.txt" in view.differences[0].reason


def remove(store: Store, ark: str) -> None:
    """The object is gone from storage."""
    if store.bucket is None:
        shutil.rmtree(store.repository.ocfl.root.object(ark))
    else:
        store.change(ark, "inventory.json", lambda _: None)


def test_an_entry_without_a_stored_version_is_broken_custody(session: Session, store: Store) -> None:
    ark = deposited(store, 1)
    deposited(store, 2)
    remove(store, ark)

    view = compared(session, store, repair=True)

    assert view.counts == {StoreProblem.NOT_STORED: 1}
    assert view.broken
    assert view.differences[0].ark == ark


def test_an_object_that_cannot_be_read_is_named_once(session: Session, store: Store) -> None:
    ark = deposited(store, 1)
    store.change(ark, "inventory.json", lambda data: data[:100])

    view = compared(session, store)

    assert view.counts == {StoreProblem.UNREADABLE: 1}
    assert view.broken


def test_a_completed_job_that_no_store_knows_is_named(session: Session, on_disk: Store) -> None:
    job = planting.job_in(session, JobState.COMPLETED)

    view = compared(session, on_disk, repair=True)

    assert view.counts == {StoreProblem.LOST: 1}
    assert view.differences[0].jid == job.jid


def test_counters_that_are_behind_are_raised_beyond_what_was_given(session: Session, on_disk: Store) -> None:
    own = on_disk.repository
    own.recorded(own.job(1, key=a_key(1), batch_id="bid0000000007"))
    session.zk.set("/ids/job", b"0")
    session.zk.set("/ids/ark-99999_fk4", b"0")

    dry = compared(session, on_disk)
    compared(session, on_disk, repair=True)

    behind = {each.counter: (each.value, each.known) for each in dry.differences}
    assert behind == {"job": (0, 1), "batch": (1, 7), "ark-99999_fk4": (0, 1)}
    assert counters.last(session, "job") == 1 + 1_000
    assert batches.submit(session, planting.submission()) > "bid0000001007"
    assert counters.last(session, "ark-99999_fk4") == 1
    assert compared(session, on_disk).counts == {}
    assert own.inventory.last_job() == 1


def test_the_counter_of_arks_is_raised_from_storage_if_the_inventory_is_lost(
    session: Session, on_disk: Store
) -> None:
    deposited(on_disk, 1)
    given = "ark:/99999/fk4given"
    on_disk.repository.recorded(on_disk.repository.job(2, key=a_key(2), primary_id=given))
    lose_inventory(session, on_disk)
    session.zk.set("/ids/ark-99999_fk4", b"0")

    view = compared(session, on_disk, repair=True)

    assert view.repaired[StoreProblem.NUMBERS] == 1
    assert counters.last(session, "ark-99999_fk4") == 1


def test_a_stopped_reconciliation_says_so_and_is_continued(session: Session, on_disk: Store) -> None:
    for number in range(1, 5):
        deposited(on_disk, number)
    lose_inventory(session, on_disk)
    ticks: list[int] = []

    run = Run(lambda compared, _: ticks.append(int(compared)), lambda: len(ticks) >= 5)
    # each version is counted once before the page is repaired: it stops at an entry of the inventory
    first = check(
        Site(on_disk.repository.settings, session),
        ANN,
        repair=True,
        run=run,
    )
    second = compared(session, on_disk, repair=True)

    assert not first.complete
    assert StoreProblem.OUTDATED not in first.repaired
    assert second.complete
    assert compared(session, on_disk).counts == {}


def test_a_postgresql_inventory_is_made_again_from_storage(
    session: Session, on_disk: Store, postgresql_server: object
) -> None:
    own = on_disk.repository
    url = postgresql_server.new_schema()  # type: ignore[attr-defined]
    own.settings = Settings.model_validate(own.settings.model_dump() | {"inventory_url": url})
    ark = deposited(on_disk, 1)
    own.inventory = open_inventory(url)
    initialize(Site(own.settings, session), missing=True)

    view = compared(session, on_disk, repair=True)

    assert view.left == 0
    assert own.described(ark).versions[0].jid == "jid0000000001"
    assert compared(session, on_disk).counts == {}
    own.inventory.database.close()


def test_the_command_reports_repairs_and_exits_with_what_is_left(session: Session, on_disk: Store) -> None:
    settings = on_disk.repository.settings
    ark = deposited(on_disk, 1)
    lose_inventory(session, on_disk)

    dry = cli.run(settings, "check")
    repaired = cli.run(settings, "check", "--repair", "--json")
    clean = cli.run(settings, "check")
    remove(on_disk, ark)
    broken = cli.run(settings, "check")

    assert dry.code == 1, dry.err
    assert f"{ark} version 1 jid0000000001" in dry.out
    assert "arkline check --repair" in dry.err
    assert repaired.code == 0, repaired.err
    assert repaired.json()["repaired"]["not-entered"] == 1
    assert clean.code == 0
    assert "agree" in clean.out
    assert broken.code == 4
    assert "restore the objects from a copy of the storage root" in broken.out
    assert on_disk.repository.inventory.database.read(
        lambda connection: connection.scalar(text("select count(*) from inv_events"))
    )


def test_a_storage_that_goes_away_during_the_search_is_no_lost_object(
    session: Session, on_disk: Store
) -> None:
    settings = on_disk.repository.settings
    deposited(on_disk, 1)

    def unmount(compared: float, _: int) -> None:
        if compared == 1:
            settings.storage.rename(settings.home / "aside")

    view = check(Site(settings, session), ANN, run=Run(unmount))

    assert "mount its disk" in view.unreachable
    assert view.counts == {}


def test_a_check_tells_what_it_compared_before_zookeeper_went_away(
    on_disk: Store, zookeeper_proxy: Proxy
) -> None:
    deposited(on_disk, 1)
    ark = deposited(on_disk, 2)
    remove(on_disk, ark)
    settings = on_disk.repository.settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})

    def lose_zookeeper(compared: float, _: int) -> None:
        if compared == 3:
            zookeeper_proxy.refuse()

    with connect(settings, answer_timeout=1) as shaky:
        view = check(Site(settings, shaky), ANN, run=Run(lose_zookeeper))
        zookeeper_proxy.accept()

    assert [(one.gap, one.ark) for one in view.differences] == [(StoreProblem.NOT_STORED, ark)]
    assert "does not answer" in view.unreachable
    assert exit_codes.of_check(view) == exit_codes.BROKEN_CUSTODY


def test_damaged_counters_and_a_damaged_sum_of_reservations_are_written_again(
    session: Session, on_disk: Store
) -> None:
    on_disk.repository.recorded(on_disk.repository.job(1, key=a_key(1)))
    held = planting.job_in(session, JobState.DOWNLOADING)
    for path in ("/ids/job", "/ids/ark-99999_fk4", paths.SPACE):
        session.zk.set(path, b"NaN")

    with pytest.raises(Corrupt) as refused:
        counters.last(session, "job")
    assert refused.value.remedies == (Remedy(Action.RECONCILE),)

    dry = compared(session, on_disk)
    compared(session, on_disk, repair=True)

    damaged = {each.counter: each.value for each in dry.differences if each.gap is StoreProblem.NUMBERS}
    assert damaged == {"job": None, "ark-99999_fk4": None}
    assert counters.last(session, "job") > int(held.jid.removeprefix("jid"))
    assert counters.last(session, "ark-99999_fk4") >= 1
    assert space.promised(session).bytes == sum(space.reservations(session).values())
    assert compared(session, on_disk).counts == {}
