"""The events of an object after processing, and the one PREMIS document with all of its events."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from hashlib import sha512
from pathlib import Path
from xml.etree import ElementTree

import pytest

from entrypoints.cli import exit_codes
from operations.objects.objects import dissemination
from pipeline.checks import Stage
from pipeline.description import premis
from pipeline.fixity import ContentFile
from pipeline.inventory import description, fixity
from pipeline.inventory.base import PreservationEvent
from pipeline.preservation.fixity import Pace
from pipeline.records import SubmissionMode, now
from pipeline.storage.base import StoreRequest
from tests.support.checks import found_in, identified, scanned
from tests.support.cli import arkline
from tests.support.fleet import set_variables
from tests.support.recordings import recording
from tests.support.repository import Repository
from tests.support.schemas import assert_valid
from tests.support.stores import Store, flip

NAMES = {"p": "http://www.loc.gov/premis/v3"}
Event = tuple[str, str]
"""Type and outcome."""

AFTER_PROCESSING = [("storage", "pass"), ("fixity check", "pass"), ("accession", "pass")]


@pytest.fixture
def store(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Store:
    set_variables(monkeypatch, repository.settings)
    return Store(repository)


def stored(store: Store) -> str:
    job = store.repository.job(1, {"a.txt": "alpha", "b.txt": "beta"}, submitter="Ann", local_id=("loc-1",))
    return store.repository.recorded(job).ark


def updated(store: Store, ark: str) -> None:
    job = store.repository.job(2, {"a.txt": "new"}, primary_id=ark, submission_mode=SubmissionMode.UPDATE)
    store.repository.recorded(job)


def checked(store: Store, ark: str) -> None:
    assert store.schedule().check(ark, Pace(0)) is not None


def timeline(ark: str) -> list[Event]:
    shown = json.loads(arkline("object", ark, "--no-verify", "--json").stdout)
    return [(event["type"], event["outcome"]) for event in shown["timeline"]]


def document(ark: str, folder: Path) -> bytes:
    """The PREMIS document of the object, which is valid."""
    file = folder / "premis.xml"
    arkline("object", ark, "--no-verify", "--premis", str(file))
    assert_valid(file.read_bytes())
    assert [path.name for path in folder.iterdir()] == ["premis.xml"]
    return file.read_bytes()


def premis_events(text: bytes) -> list[Event]:
    return [
        (
            event.findtext("p:eventType", "", NAMES),
            event.findtext("p:eventOutcomeInformation/p:eventOutcome", "", NAMES),
        )
        for event in ElementTree.fromstring(text).iterfind("p:event", NAMES)
    ]


def values(text: bytes, path: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(text).iterfind(path, NAMES)]


def test_a_link_gets_the_premis_document_and_stays_a_link(store: Store, tmp_path: Path) -> None:
    ark, place, file = stored(store), tmp_path / "link", tmp_path / "premis.xml"
    file.touch()
    place.symlink_to(file)

    arkline("object", ark, "--no-verify", "--premis", str(place))

    assert place.is_symlink()
    assert_valid(file.read_bytes())


def test_a_pipe_gets_the_premis_document_and_stays_a_pipe(store: Store, tmp_path: Path) -> None:
    ark, place = stored(store), tmp_path / "pipe"
    os.mkfifo(place)
    with subprocess.Popen(["cat", place], stdout=subprocess.PIPE) as reader:
        arkline("object", ark, "--no-verify", "--premis", str(place))
        document = reader.communicate()[0]

    assert place.is_fifo()
    assert_valid(document)


def test_storing_reading_back_and_recording_are_events_of_the_object(store: Store) -> None:
    ark = stored(store)

    assert timeline(ark) == AFTER_PROCESSING
    shown = arkline("object", ark, "--no-verify").stdout
    assert "accession" in shown
    assert "version 1, entered in the inventory" in shown


def test_the_last_proof_of_the_fixity_schedule_is_an_event(store: Store) -> None:
    ark = stored(store)
    checked(store, ark)
    checked(store, ark)

    assert timeline(ark) == [*AFTER_PROCESSING, ("fixity check", "pass")]
    shown = json.loads(arkline("object", ark, "--no-verify", "--json").stdout)
    assert "files of 1 version, read again" in shown["timeline"][-1]["detail"]


def test_damage_and_its_repair_are_events_with_the_file(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    store.change(ark, "v1/content/producer/b.txt", flip)
    checked(store, ark)
    store.change(ark, "v1/content/producer/b.txt", flip)
    checked(store, ark)

    assert timeline(ark) == [*AFTER_PROCESSING, ("fixity check", "fail"), ("fixity check", "pass")]
    text = document(ark, tmp_path)
    (note,) = [note for note in values(text, ".//p:eventOutcomeDetailNote") if "b.txt" in note]
    assert note.startswith("producer/b.txt of version 1: storage has 4 bytes")


def test_damage_to_the_description_of_an_object_is_an_event_that_names_no_version(
    store: Store, tmp_path: Path
) -> None:
    ark = stored(store)
    store.change(ark, "inventory.json.sha512", lambda _: None)
    checked(store, ark)

    notes = values(document(ark, tmp_path), ".//p:eventOutcomeDetailNote")
    assert notes[-1].startswith("the description of the object: ")
    assert notes[-1].endswith("inventory.json.sha512 is missing")


def test_the_command_line_shows_the_damage_of_a_failed_event(store: Store) -> None:
    ark = stored(store)
    store.change(ark, "v1/content/producer/b.txt", flip)
    checked(store, ark)

    shown = arkline("object", ark, "--no-verify").stdout

    assert "and compared; producer/b.txt of version 1: storage has 4 bytes" in " ".join(shown.split())


def test_one_document_has_all_events_from_transfer_to_the_last_check(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    updated(store, ark)
    checked(store, ark)

    found = premis_events(document(ark, tmp_path))

    processing = [("identifier assignment", "success"), ("ingestion", "success")]
    assert found == [*processing, *processing, *AFTER_PROCESSING, *AFTER_PROCESSING, ("fixity check", "pass")]


@pytest.mark.parametrize("given", [None, "ark:/99999/fk4own"])
def test_who_chose_the_ark_is_said_once_and_not_otherwise_by_a_later_version(
    store: Store, tmp_path: Path, given: str | None
) -> None:
    """... that names the object in the other way than the first did."""
    made = store.repository
    first = made.job(1, {"a.txt": "alpha"}, primary_id=given, local_id=("loc-1",))
    ark = made.recorded(first).ark
    named = {"local_id": ("loc-1",)} if given else {"primary_id": ark}
    made.recorded(made.job(2, {"a.txt": "new"}, submission_mode=SubmissionMode.UPDATE, **named))

    text = document(ark, tmp_path).decode()

    who = ("given by the depositor", "assigned to the object by arkline")
    assert [text.count(f"{ark}, {how}") for how in who] == ([1, 0] if given else [0, 1])
    assert text.count(f"{ark}, that of the object since an earlier version") == 1


def test_every_event_and_agent_of_the_document_has_one_identifier(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    updated(store, ark)
    arkline("export", ark, "--output", str(tmp_path / "bag"))
    shutil.rmtree(tmp_path / "bag")

    text = document(ark, tmp_path)

    for role in ("event", "agent", "object"):
        identifiers = values(text, f"p:{role}/p:{role}Identifier/p:{role}IdentifierValue")
        assert len(identifiers) == len(set(identifiers)) > 1, role
    agents = set(values(text, "p:agent/p:agentIdentifier/p:agentIdentifierValue"))
    assert set(values(text, "p:event/p:linkingAgentIdentifier/p:linkingAgentIdentifierValue")) < agents


def test_the_document_has_each_file_of_all_versions_once(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    updated(store, ark)

    identifiers = values(document(ark, tmp_path), "p:object/p:objectIdentifier/p:objectIdentifierValue")

    assert [name for name in identifiers if "/producer/" in name] == [
        f"{ark}/1/producer/a.txt",
        f"{ark}/1/producer/b.txt",
        f"{ark}/2/producer/a.txt",
    ]
    assert identifiers[:2] == [ark, "loc-1"]


def test_damaged_events_of_a_version_are_not_copied_and_the_document_says_so(
    store: Store, tmp_path: Path
) -> None:
    ark = stored(store)
    store.change(
        ark, "v1/content/system/mrt-premis.xml", lambda data: data.replace(b"ingestion", b"INGESTION")
    )

    text = document(ark, tmp_path)

    assert premis_events(text) == [("fixity check", "fail"), *AFTER_PROCESSING]
    assert f"system/mrt-premis.xml of version 1 of {ark} is not as it was stored" in text.decode()


@pytest.mark.parametrize("change", ["digest_value = '00ff'", "source_digest = 'sha512:00ff'"])
def test_a_row_of_the_inventory_whose_digest_is_none_is_named_and_refuses_the_document(
    store: Store, tmp_path: Path, change: str
) -> None:
    ark = stored(store)
    statement = f"UPDATE inv_files SET {change} WHERE pathname = 'producer/a.txt'"
    store.repository.inventory.database.write(lambda connection: connection.exec_driver_sql(statement))

    refused = arkline("export", ark, "--output", str(tmp_path / "bag"), code=exit_codes.BROKEN_CUSTODY)

    assert "which is no sha512, for 'producer/a.txt' in version 1" in refused.stderr
    assert "restore this row of inv_files from a copy of the inventory" in refused.stderr
    assert not (tmp_path / "bag").exists()


def test_an_export_is_an_event_and_the_bag_has_all_events_with_it(store: Store, tmp_path: Path) -> None:
    ark = stored(store)

    arkline("export", ark, "--output", str(tmp_path / "bag"))

    text = (tmp_path / "bag" / "metadata" / "premis.xml").read_bytes()
    assert_valid(text)
    assert premis_events(text)[-4:] == [*AFTER_PROCESSING, ("dissemination", "pass")]
    assert "  metadata/premis.xml\n" in (tmp_path / "bag" / "tagmanifest-sha512.txt").read_text()
    assert timeline(ark) == [*AFTER_PROCESSING, ("dissemination", "pass")]
    (entered,) = store.repository.inventory.events_of(ark)
    identifiers = values(text, "p:event/p:eventIdentifier/p:eventIdentifierValue")
    assert identifiers[-1] == f"{ark} dissemination {entered.at.isoformat()}"
    assert entered.version == 1


def test_an_export_that_meets_damaged_events_of_an_earlier_version_has_the_object_checked(
    store: Store, tmp_path: Path
) -> None:
    ark = stored(store)
    updated(store, ark)
    store.change(ark, "v1/content/system/mrt-premis.xml", flip)

    arkline("export", ark, "--output", str(tmp_path / "bag"))

    asked = fixity.next_asked_proofs(store.repository.inventory)
    assert [(proof.ark, proof.version) for proof in asked] == [(ark, 1)]


def test_an_inventory_that_takes_no_request_for_a_check_does_not_prevent_such_an_export(
    store: Store, tmp_path: Path
) -> None:
    ark = stored(store)
    updated(store, ark)
    store.change(ark, "v1/content/system/mrt-premis.xml", flip)
    refuse = "CREATE TRIGGER refuse BEFORE INSERT ON inv_proofs BEGIN INSERT INTO absent VALUES (1); END"
    store.repository.inventory.database.write(lambda connection: connection.exec_driver_sql(refuse))

    arkline("export", ark, "--output", str(tmp_path / "bag"))

    assert (tmp_path / "bag" / "metadata" / "premis.xml").exists()


def test_a_refused_export_is_an_event_with_the_damage(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    store.change(ark, "v1/content/producer/b.txt", flip)

    arkline("export", ark, "--output", str(tmp_path / "bag"), code=exit_codes.BROKEN_CUSTODY)

    assert timeline(ark) == [*AFTER_PROCESSING, ("dissemination", "fail")]
    (entered,) = store.repository.inventory.events_of(ark)
    assert f"'producer/b.txt' of {ark} is damaged in storage" in entered.files[0].what
    assert entered.reported is not None


def test_premis_has_what_a_refused_export_was_asked_for_and_the_damage(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    store.change(ark, "v1/content/producer/b.txt", flip)
    arkline("export", ark, "--output", str(tmp_path / "bag"), code=exit_codes.BROKEN_CUSTODY)

    (tmp_path / "document").mkdir()
    text = document(ark, tmp_path / "document")

    assert values(text, ".//p:eventDetail")[-1] == "version 1: a copy of the object"
    assert values(text, ".//p:eventOutcomeDetailNote")[-1].startswith("'producer/b.txt' of ark:")


def test_a_failed_event_of_an_earlier_release_does_not_state_that_every_file_was_read(store: Store) -> None:
    ark = stored(store)
    of_earlier = replace(dissemination(ark, 1, "Ann", "the file is damaged"), outcome=description.FAIL)
    store.repository.inventory.enter_export(of_earlier)

    shown = json.loads(arkline("object", ark, "--no-verify", "--json").stdout)["timeline"][-1]

    assert (shown["detail"], shown["note"]) == (
        "version 1, read from storage to be given out",
        "the file is damaged",
    )


def test_an_inventory_that_takes_no_event_does_not_prevent_an_export(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    refuse = "CREATE TRIGGER refuse BEFORE INSERT ON inv_events BEGIN INSERT INTO absent VALUES (1); END"
    store.repository.inventory.database.write(lambda connection: connection.exec_driver_sql(refuse))

    told = arkline("export", ark, "--output", str(tmp_path / "bag"))

    assert "the inventory has no event of this export" in told.stderr
    assert (tmp_path / "bag" / "bagit.txt").is_file()


def test_the_inventory_keeps_the_latest_exports_of_an_object(store: Store) -> None:
    ark = stored(store)
    inventory = store.repository.inventory
    export = PreservationEvent(
        id=0,
        ark=ark,
        type=description.DISSEMINATION,
        at=now(),
        agent="arkline Ann",
        outcome=description.PASS,
        damaged=0,
        files=(),
        reported=None,
        version=1,
    )

    for number in range(description.KEPT_EXPORTS + 2):
        inventory.enter_export(PreservationEvent(**{**vars(export), "note": str(number)}))

    kept = [event.note for event in inventory.events_of(ark)]
    assert kept == [str(number) for number in range(2, description.KEPT_EXPORTS + 2)]


def test_checks_after_storing_are_events_and_formats_in_the_document(store: Store, tmp_path: Path) -> None:
    ark = stored(store)
    runs = (
        scanned("a.txt", found_in("b.txt", "Eicar"), stage=Stage.STORED, at=now()),
        identified({"a.txt": "x-fmt/111", "b.txt": "x-fmt/111"}, stage=Stage.RECORDED, at=now()),
    )
    store.repository.inventory.add_checks(ark, 1, runs)

    assert timeline(ark) == [*AFTER_PROCESSING, ("virus check", "found"), ("format identification", "fine")]
    text = document(ark, tmp_path)
    assert premis_events(text)[-2:] == [("virus check", "found"), ("format identification", "fine")]
    assert values(text, "p:object//p:formatRegistryKey") == ["x-fmt/111", "x-fmt/111"]
    assert {"clamav", "pronom"} <= set(values(text, "p:agent/p:agentName"))


def test_a_check_in_the_stored_document_is_one_event_of_the_object(store: Store, tmp_path: Path) -> None:
    repository, ark = store.repository, "ark:/99999/fk4scanned"
    run = scanned(found_in("a.txt", "Eicar"), at=now())
    job = repository.job(1, {"a.txt": "alpha"})
    content = _content(tmp_path / "a.txt", "producer/a.txt", b"alpha")
    events = b"".join(premis.pieces(job, ark, (content,), (), runs=(run,)))
    document_file = _content(tmp_path / "premis.xml", f"system/{premis.NAME}", events)
    request = StoreRequest(
        ark=ark,
        jid=job.jid,
        key=job.configuration.key,
        mode=SubmissionMode.ADD,
        files=(content, document_file),
        delete=(),
        new=True,
        message="",
        user="",
        node=None,
    )
    version = repository.storage.store(request, lambda: None)
    repository.inventory.record(replace(recording(ark, checks=(run,)), version=version))
    (folder := tmp_path / "document").mkdir()

    text = document(ark, folder)

    assert [event for event in premis_events(text) if event[0] == "virus check"] == [("virus check", "found")]
    assert values(text, "p:agent/p:agentName").count("clamav") == 1


def _content(file: Path, path: str, data: bytes) -> ContentFile:
    file.write_bytes(data)
    return ContentFile(path, file, len(data), sha512(data).hexdigest(), "text/plain")
