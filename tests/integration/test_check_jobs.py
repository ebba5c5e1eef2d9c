"""`check --jobs` compares completed jobs with storage and inventory; commands refuse stores of others."""

import socket
from pathlib import Path

import pytest
from sqlalchemy import text

from operations.checks.aliases import audit_view
from operations.checks.check import CheckView, Scope, check
from operations.checks.deployment import initialize
from operations.checks.differences import Difference, StoreProblem
from operations.site import Site
from pipeline.inventory.sql import open_inventory
from pipeline.records import Identifiers
from pipeline.settings import Settings
from pipeline.states import JobState
from tests.support import cli, planting
from tests.support.operators import ANN
from tests.support.repository import Repository
from tests.support.stores import Store, flip, with_record
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.fleet import notes
from zkstate.record import jobs


@pytest.fixture
def store(repository: Repository, session: Session, settings: Settings) -> Store:
    return with_record(repository, session, settings)


def completed(session: Session, store: Store) -> str:
    """The ARK of a completed job that is in record, storage and inventory."""
    job = planting.job_in(session, JobState.COMPLETED)
    number = int(job.jid.removeprefix("jid"))
    made = store.repository.job(number, {"a.txt": "alpha"}, key=job.configuration.key)
    ark = store.repository.recorded(made).ark
    known = Identifiers(primary_id=ark, assigned=True)
    session.zk.set(paths.identifiers(job.jid), known.model_dump_json().encode())
    return ark


def checked(session: Session, store: Store, *, content: bool = False) -> CheckView:
    return check(Site(store.repository.settings, session), ANN, Scope.JOBS, content=content)


def of_stores(view: CheckView) -> list[Difference]:
    return [found for found in view.differences if found.gap is not StoreProblem.INCONSISTENT]


def problems(view: CheckView) -> list[StoreProblem]:
    return [found.gap for found in of_stores(view)]


def test_a_completed_job_that_storage_and_inventory_have_is_no_finding(
    session: Session, store: Store
) -> None:
    completed(session, store)

    view = checked(session, store, content=True)

    assert (view.differences, view.compared) == ((), 1)
    assert view.complete
    ended = notes.AUDIT.readable(session)
    assert ended is not None
    assert ended.findings == 0


def test_a_completed_job_without_an_entry_or_without_a_version_is_found(
    session: Session, store: Store
) -> None:
    ark = completed(session, store)
    store.repository.ocfl.root.object(ark).rename(store.repository.settings.home / "aside")
    planting.job_in(session, JobState.COMPLETED)

    view = checked(session, store)

    assert sorted(problems(view)) == [StoreProblem.LOST, StoreProblem.NOT_STORED]
    assert view.broken


def test_a_stored_version_of_a_failed_job_is_found_with_the_resume_that_enters_it(
    session: Session, store: Store
) -> None:
    job = planting.job_in(session, JobState.FAILED, JobState.DOWNLOADING)
    planting.job_in(session, JobState.FAILED, JobState.DOWNLOADING)
    number = int(job.jid.removeprefix("jid"))
    stored = store.repository.work(store.repository.job(number, key=job.configuration.key))
    known = Identifiers(primary_id=stored.ark, assigned=True)
    session.zk.set(paths.identifiers(job.jid), known.model_dump_json().encode())

    view = checked(session, store)
    done = cli.run(store.repository.settings, "check", "--jobs")

    (finding,) = of_stores(view)
    assert (finding.gap, finding.jid, finding.ark) == (StoreProblem.NOT_ENTERED, job.jid, stored.ark)
    assert (finding.version, finding.job_failed, view.compared) == (1, True, 0)
    assert done.code == 1
    assert f"arkline resume {job.jid}" in " ".join(done.out.split())


def test_a_digest_that_differs_between_inventory_and_storage_is_found_without_reading_the_file(
    session: Session, store: Store
) -> None:
    completed(session, store)
    change = "update inv_files set digest_value = 'x' where pathname = 'producer/a.txt'"
    store.repository.inventory.database.write(lambda connection: connection.execute(text(change)))

    view = checked(session, store)

    assert problems(view) == [StoreProblem.DIFFERENT]
    assert of_stores(view)[0].reason == "producer/a.txt"


def test_damaged_bytes_are_found_if_the_content_is_read(session: Session, store: Store) -> None:
    ark = completed(session, store)
    store.change(ark, "v1/content/producer/a.txt", flip)

    assert problems(checked(session, store)) == []
    (found,) = of_stores(checked(session, store, content=True))
    assert found.gap is StoreProblem.DAMAGED
    assert found.reason.startswith("producer/a.txt: storage has 5 bytes")


@pytest.mark.parametrize("change", ["full_size = 999", "landed_digest = 'x'"])
def test_a_wrong_record_of_bytes_that_are_as_stored_is_no_damage_in_storage(
    session: Session, store: Store, change: str
) -> None:
    completed(session, store)
    statement = f"update inv_files set {change} where pathname = 'producer/a.txt'"
    store.repository.inventory.database.write(lambda connection: connection.execute(text(statement)))

    (found,) = of_stores(checked(session, store, content=True))

    assert found.gap is StoreProblem.DIFFERENT
    assert found.reason.startswith("producer/a.txt: it ")


@pytest.mark.parametrize("path", ["inventory.json.sha512", "v1/inventory.json"])
def test_damage_to_the_description_of_an_object_is_found_if_the_content_is_read(
    session: Session, store: Store, path: str
) -> None:
    ark = completed(session, store)
    store.change(ark, path, flip)

    assert problems(checked(session, store)) == []
    (found,) = of_stores(checked(session, store, content=True))
    assert (found.gap, found.ark) == (StoreProblem.DAMAGED, ark)
    assert path in found.reason


def test_the_audit_says_that_a_store_cannot_be_compared(session: Session, store: Store) -> None:
    completed(session, store)
    settings = store.repository.settings
    settings.storage.rename(settings.home / "aside")

    done = cli.run(settings, "check", "--jobs")
    alone = cli.run(settings, "check", "--record")

    assert done.code == 3
    assert "mount its disk" in done.err
    assert alone.code == 0


@pytest.fixture
def other(session: Session, store: Store, tmp_path: Path) -> Settings:
    """Storage root and inventory of another deployment."""
    own = store.repository.settings.model_dump(exclude_unset=True)
    root = own["zk_root"] + "/other"
    home = tmp_path / "other"
    home.mkdir()
    foreign = Settings.model_validate(own | {"zk_root": root, "home": home})
    with connect(foreign) as theirs:
        initialize(Site(foreign, theirs))
    open_inventory(foreign.inventory).database.close()
    return foreign


def test_commands_refuse_a_storage_root_or_an_inventory_of_another_deployment(
    session: Session, store: Store, other: Settings
) -> None:
    ark = completed(session, store)
    failed = planting.job_in(session, JobState.FAILED)
    own = store.repository.settings.model_dump(exclude_unset=True)
    wrong_root = Settings.model_validate(own | {"storage_root": other.storage})
    wrong_record = Settings.model_validate(own | {"zk_root": other.zk_root})
    wrong_inventory = Settings.model_validate(own | {"inventory_url": other.inventory})

    for settings, command in (
        (wrong_root, ("export", ark)),
        (wrong_root, ("object", ark)),
        (wrong_record, ("export", ark)),
        (wrong_record, ("object", ark, "--no-verify")),
        (wrong_root, ("fixity", "check", "--all")),
        (wrong_root, ("check",)),
        (wrong_inventory, ("fixity", "check", "--all")),
        (wrong_inventory, ("delete", failed.jid, "--yes", "--reason", "x")),
        (wrong_inventory, ("check",)),
    ):
        done = cli.run(settings, *command)

        assert done.code == 3, (command, done)
        assert "belongs to deployment" in done.err, (command, done)
    assert jobs.load(session, failed.jid).status.status is JobState.FAILED


def test_an_object_is_shown_and_exported_without_zookeeper_and_without_a_record(
    session: Session, store: Store, tmp_path: Path
) -> None:
    ark = completed(session, store)
    own = store.repository.settings.model_dump(exclude_unset=True)
    empty = f"{own['zk_root']}-empty"
    silent = socket.create_server(("127.0.0.1", 0))  # accepts connections and never answers

    for number, (given, reason) in enumerate(
        (
            ({"zk_hosts": "127.0.0.1:1"}, "does not answer"),
            ({"zk_hosts": f"127.0.0.1:{silent.getsockname()[1]}"}, "does not answer"),
            ({"zk_root": empty}, "has no deployment id"),
            ({}, ""),
        )
    ):
        settings = Settings.model_validate(own | given)
        shown = cli.run(settings, "object", ark, "--json")
        exported = cli.run(settings, "export", ark, "--output", str(tmp_path / f"bag-{number}"))

        for done in (shown, exported):
            assert done.code == 0, done
            assert ("not compared with the record" in done.err) == bool(reason), done
            assert reason in done.err
        assert shown.json()["ark"] == ark
    silent.close()
    with connect(Settings.model_validate(own | {"zk_root": empty}), create=False) as untouched:
        assert untouched.zk.exists("/") is None


def test_a_check_of_everything_finds_other_digests_and_damaged_bytes_too(
    session: Session, store: Store
) -> None:
    ark = completed(session, store)
    completed(session, store)
    change = "update inv_files set digest_value = 'x' where id = (select max(id) from inv_files)"
    store.repository.inventory.database.write(lambda connection: connection.execute(text(change)))
    store.change(ark, "v1/content/producer/a.txt", flip)

    view = check(Site(store.repository.settings, session), ANN, content=True)

    assert {StoreProblem.DIFFERENT, StoreProblem.DAMAGED} <= set(problems(view))
    assert view.broken


def test_the_older_names_print_their_documents_with_their_exit_codes(session: Session, store: Store) -> None:
    settings = store.repository.settings
    job = planting.job_in(session, JobState.COMPLETED)
    session.zk.create(f"{paths.queue(JobState.PENDING)}/stray", b"")

    audited = cli.run(settings, "audit", "--json")
    reconciled = cli.run(settings, "reconcile", "--json")
    session.zk.delete(f"{paths.queue(JobState.PENDING)}/stray")

    (finding,) = audited.json()["findings"]
    (stored,) = audited.json()["stores"]
    assert (audited.code, finding["path"].endswith("/stray")) == (1, True)
    assert (stored["jid"], stored["problem"], audited.json()["compared"]) == (job.jid, "not-entered", 1)
    assert (reconciled.code, reconciled.json()["counts"]) == (4, {"lost": 1})
    assert [found["jid"] for found in reconciled.json()["differences"]] == [job.jid]


def test_an_audit_is_broken_by_damage_that_it_does_not_list() -> None:
    counts = {StoreProblem.LOST: 1_000, StoreProblem.DAMAGED: 1}
    listed = Difference(gap=StoreProblem.LOST, jid="jid0000000001", reason="")
    view = CheckView(
        repair=False,
        compared=1_001,
        counts=counts,
        repaired={},
        differences=(listed,),
        listed=True,
        not_compared=(),
        complete=True,
    )

    audited = audit_view(view)

    assert (audited.broken, audited.counts) == (
        True,
        {StoreProblem.NOT_ENTERED: 1_000, StoreProblem.DAMAGED: 1},
    )
