"""`arkline object`: the proof that an object is what was deposited, after the real steps of real jobs."""

import hashlib
import json
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from entrypoints.cli import exit_codes
from entrypoints.cli.main import app
from entrypoints.render import custody as drawn_object
from entrypoints.render.screen import interruptible
from operations.objects.objects import known_object, object_view
from pipeline.fixity import Digest, StoredVersion
from pipeline.manifests.checkm import ManifestProfile, Row, write
from pipeline.outcome import AttemptOver, Done
from pipeline.preservation.custody import Reading, prove
from pipeline.records import Job, PayloadType, SubmissionMode
from pipeline.steps import download, record
from pipeline.working_storage.workspace import Workspace
from tests.component.test_download_container import packed
from tests.servers.http_source import HttpSource
from tests.support.downloading import md5
from tests.support.fleet import environment
from tests.support.recordings import ARK, OTHER_OWNER, recording
from tests.support.repository import Repository

UPDATE = SubmissionMode.UPDATE
runner = CliRunner()


def deposited(repository: Repository, number: int, payload_type: PayloadType, url: str, **facts: Any) -> Job:
    """A job whose files really came from their source."""
    job = repository.job(number, {}, payload_type=payload_type, payload_url=url, **facts)
    workspace = Workspace.of(job, repository.settings.working)
    workspace.downloaded.unlink()
    return job


def downloaded(repository: Repository, job: Job) -> Job:
    assert isinstance(download.work(job, repository.services()), Done)
    return job


def asked(repository: Repository, *arguments: str, **more: str) -> Result:
    """What `arkline object ARGUMENTS` answers with these settings."""
    environment = {"ARKLINE_HOME": str(repository.settings.home), "COLUMNS": "", **more}
    return runner.invoke(app, ["object", *arguments], env=environment)


def proved(repository: Repository, *arguments: str, code: int = 0) -> dict[str, Any]:
    told = asked(repository, *arguments, "--json")
    assert told.exit_code == code, told.output
    custody = json.loads(told.stdout)["custody"]
    assert isinstance(custody, dict)
    return custody


def of_file(custody: dict[str, Any], path: str) -> dict[str, Any]:
    (found,) = (file for file in custody["files"] if file["path"] == path)
    assert isinstance(found, dict)
    return found


def content(repository: Repository, stored: StoredVersion, path: str) -> Path:
    """Where the bytes of a version's file lie."""
    found = repository.ocfl.root.object(stored.ark) / f"v{stored.number}" / "content" / path
    assert found.exists()
    return found


def damage(path: Path) -> None:
    """Flip one bit, as a disk might."""
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def change(repository: Repository, statement: str) -> None:
    """Change the inventory behind its back."""
    repository.inventory.database.close()
    with sqlite3.connect(repository.settings.home / "inventory.sqlite") as database:
        assert database.execute(statement).rowcount
    database.close()


def sha512(text: str) -> str:
    return hashlib.sha512(text.encode()).hexdigest()


def test_the_digest_that_a_manifest_declared_is_followed_to_what_storage_has_now(
    repository: Repository, source: HttpSource
) -> None:
    rows = [
        Row(line=0, url=source.put("/a", b"alpha"), name="a.txt", digest=md5(b"alpha"), size=5),
        Row(line=0, url=source.put("/b", b"beta"), name="b.txt", digest=None, size=None),
    ]
    job = deposited(repository, 1, PayloadType.OBJECT_MANIFEST, "http://source.example/1.checkm")
    workspace = Workspace.of(job, repository.settings.working)
    workspace.publish(workspace.manifest, write(ManifestProfile.OBJECT, rows))
    stored = repository.recorded(downloaded(repository, job))

    custody = proved(repository, stored.ark)

    assert (custody["versions"], custody["agrees"], custody["complete"]) == ([1], True, True)
    assert custody["bytes_read"] == sum(file.size for file in stored.files)
    found = of_file(custody, "producer/a.txt")
    assert found["verdict"] == "agrees"
    assert found["source"] == {
        "origin": "declared",
        "digest": str(md5(b"alpha")),
        "checked": True,
        "declared_by": "1.checkm line 6",
        "container": "",
        "url": rows[0].url,
    }
    assert found["download"]["sha512"] == found["storage"]["sha512"] == found["now"]["sha512"]
    assert found["now"]["sha512"] == sha512("alpha")
    assert (found["storage"]["version"], found["storage"]["jid"]) == (1, job.jid)
    assert found["storage"]["read_back"] is not None
    assert found["now"]["size"] == 5
    assert of_file(custody, "producer/b.txt")["source"]["origin"] == "none declared"
    assert of_file(custody, "system/mrt-erc.txt")["source"]["origin"] == "made by arkline"
    assert str(md5(b"alpha").value) in repository.text(stored, "system/mrt-premis.xml")


def test_the_files_of_a_container_have_the_digest_of_the_container_or_of_the_list_in_it(
    repository: Repository, source: HttpSource
) -> None:
    inner = write(
        ManifestProfile.OBJECT,
        [Row(line=0, url="http://example.org/a", name="a.txt", digest=md5(b"alpha"), size=5)],
    )
    files = {"a.txt": b"alpha", "mrt-manifest.txt": inner}
    body = packed(files)
    declared = Digest(algorithm="sha256", value=hashlib.sha256(body).hexdigest())
    job = deposited(
        repository,
        1,
        PayloadType.CONTAINER,
        source.put("/box.zip", body),
        payload_name="box.zip",
        digest=declared,
    )

    custody = proved(repository, repository.recorded(downloaded(repository, job)).ark)

    listed = of_file(custody, "producer/a.txt")["source"]
    assert (listed["origin"], listed["digest"]) == ("declared", str(md5(b"alpha")))
    assert listed["declared_by"] == "mrt-manifest.txt line 6"
    other = of_file(custody, "producer/mrt-manifest.txt")["source"]
    assert (other["origin"], other["digest"]) == ("declared for its container", str(declared))
    assert (other["container"], other["declared_by"]) == ("box.zip", "submission")


def test_a_file_that_an_update_carries_forward_is_followed_to_the_version_that_brought_it(
    repository: Repository,
) -> None:
    ark = repository.recorded(repository.job(1, {"a": "alpha", "b": "beta"})).ark
    repository.recorded(repository.job(2, {"b": "new"}, primary_id=ark, submission_mode=UPDATE))

    custody = proved(repository, ark)

    carried = of_file(custody, "producer/a")
    assert (custody["versions"], carried["version"], carried["verdict"]) == ([2], 2, "agrees")
    assert (carried["download"]["version"], carried["download"]["jid"]) == (1, "jid0000000001")
    assert (carried["storage"]["version"], carried["storage"]["jid"]) == (1, "jid0000000001")
    assert of_file(custody, "producer/b")["download"]["version"] == 2


def test_bytes_that_versions_share_are_read_once(repository: Repository) -> None:
    first = repository.recorded(repository.job(1, {"a": "x" * 1000}))
    second = repository.recorded(
        repository.job(2, {"b": "y" * 500}, primary_id=first.ark, submission_mode=UPDATE)
    )

    custody = proved(repository, first.ark, "--all-versions")

    assert custody["versions"] == [1, 2]
    assert {file["version"] for file in custody["files"] if file["path"] == "producer/a"} == {1, 2}
    brought = {file.sha512: file.size for file in (*first.files, *second.files)}
    assert custody["bytes_read"] == sum(brought.values())


def test_a_bit_that_flipped_in_storage_breaks_custody_and_the_file_is_named(repository: Repository) -> None:
    stored = repository.recorded(repository.job(1, {"a.txt": "alpha", "b.txt": "beta"}))
    place = content(repository, stored, "producer/a.txt")
    damage(place)

    custody = proved(repository, stored.ark, code=4)
    told = asked(repository, stored.ark)

    broken = of_file(custody, "producer/a.txt")
    assert broken["verdict"] == "differs"
    assert broken["download"]["sha512"] == broken["storage"]["sha512"] == sha512("alpha")
    assert broken["now"]["sha512"] == hashlib.sha512(place.read_bytes()).hexdigest()
    assert of_file(custody, "producer/b.txt")["verdict"] == "agrees"
    assert told.exit_code == 4
    assert "producer/a.txt of version 1: storage has 5 bytes with the sha512" in told.stdout
    assert f"To do: restore {place} from a copy of the storage" in told.stdout
    assert f"Custody is broken: 1 of {len(stored.files)} files." in told.stdout


def test_a_file_that_is_gone_from_storage_breaks_custody(repository: Repository) -> None:
    stored = repository.recorded(repository.job(1, {"a.txt": "alpha"}))
    place = content(repository, stored, "producer/a.txt")
    place.unlink()

    custody = proved(repository, stored.ark, code=4)

    missing = of_file(custody, "producer/a.txt")
    assert missing["verdict"] == "missing"
    assert missing["problems"][0]["what"] == f"{place} is missing"
    assert (missing["now"]["size"], missing["now"]["sha512"]) == (None, None)


def test_damage_to_the_description_of_the_object_breaks_custody(repository: Repository) -> None:
    stored = repository.recorded(repository.job(1, {"a.txt": "alpha"}))
    damage(repository.ocfl.root.object(stored.ark) / "inventory.json.sha512")

    custody = proved(repository, stored.ark, code=4)
    told = asked(repository, stored.ark)

    assert {file["verdict"] for file in custody["files"]} == {"agrees"}
    (problem,) = custody["description"]
    assert problem["what"].endswith("inventory.json.sha512 was changed")
    assert f"the description of the object: {problem['what']}." in told.stdout
    assert "files as stored, but not the description of the object." in told.stdout


def test_an_object_that_is_gone_from_storage_breaks_custody(repository: Repository) -> None:
    stored = repository.recorded(repository.job(1))
    folder = repository.ocfl.root.object(stored.ark)
    folder.rename(folder.with_name("elsewhere"))

    custody = proved(repository, stored.ark, code=4)

    assert {file["verdict"] for file in custody["files"]} == {"missing"}
    assert "storage lists no such file in version 1" in custody["files"][0]["problems"][0]["what"]


@pytest.mark.parametrize(
    ("column", "value", "what", "remedy"),
    [
        ("digest_value", "'00'", "but the inventory says 00", "restore this row of inv_files"),
        (
            "landed_digest",
            "'00'",
            "it was downloaded with the sha512 00",
            "the record of the download was changed",
        ),
        ("full_size", "7", "it has 5 bytes, but the inventory says 7", "restore this row of inv_files"),
        (
            "source_digest",
            f"'sha512:{sha512('beta')}'",
            "was declared (submission)",
            "compare inv_files with system/mrt-premis.xml of version 1",
        ),
    ],
)
def test_a_record_that_was_changed_in_the_inventory_is_told_from_damage(
    repository: Repository, source: HttpSource, column: str, value: str, what: str, remedy: str
) -> None:
    digest = Digest(algorithm="sha512", value=sha512("alpha"))
    url = source.put("/a.txt", b"alpha")
    job = deposited(repository, 1, PayloadType.FILE, url, payload_name="a.txt", digest=digest)
    stored = repository.recorded(downloaded(repository, job))
    change(repository, f"UPDATE inv_files SET {column} = {value} WHERE pathname = 'producer/a.txt'")

    (problem,) = of_file(proved(repository, stored.ark, code=4), "producer/a.txt")["problems"]

    assert what in problem["what"]
    assert remedy in problem["remedy"]


def test_a_file_that_was_taken_out_of_the_inventory_is_found_in_storage(repository: Repository) -> None:
    stored = repository.recorded(repository.job(1, {"a.txt": "alpha", "b.txt": "beta"}))
    change(repository, "DELETE FROM inv_files WHERE pathname = 'producer/a.txt'")

    unknown = of_file(proved(repository, stored.ark, code=4), "producer/a.txt")

    assert unknown["verdict"] == "not in the inventory"
    assert "storage has this file in version 1" in unknown["problems"][0]["what"]


def test_what_an_earlier_release_recorded_is_compared_with_what_it_stored(repository: Repository) -> None:
    stored = repository.recorded(repository.job(1, {"a.txt": "alpha"}))
    change(repository, "UPDATE inv_files SET landed_digest = NULL")
    change(repository, "UPDATE inv_ingests SET landed = NULL, verified = NULL")

    told = asked(repository, stored.ark)
    old = of_file(proved(repository, stored.ark), "producer/a.txt")

    assert told.exit_code == 0
    assert "the declared digest and the download of 1 file are not recorded" in told.stderr
    assert (old["source"]["origin"], old["download"]) == ("not recorded", None)
    assert (old["storage"]["read_back"], old["verdict"]) == (None, "agrees")
    damage(content(repository, stored, "producer/a.txt"))
    assert proved(repository, stored.ark, code=4)


def test_of_a_file_that_an_earlier_release_fetched_it_is_not_said_that_nothing_was_declared(
    repository: Repository,
) -> None:
    job = repository.job(1, {"a.txt": "alpha"})
    listed = Workspace.of(job, repository.settings.working).downloaded
    files = json.loads(listed.read_text())
    older = ("path", "size", "sha512", "url")
    listed.write_text(json.dumps([{name: file[name] for name in older} for file in files]))

    found = of_file(proved(repository, repository.recorded(job).ark), "producer/a.txt")

    assert found["source"]["origin"] == "not recorded"
    assert found["download"]["sha512"] == sha512("alpha")


def test_records_alone_are_compared_without_reading(repository: Repository) -> None:
    stored = repository.recorded(repository.job(1, {"a.txt": "alpha"}))
    damage(content(repository, stored, "producer/a.txt"))

    told = asked(repository, stored.ark, "--no-verify")
    custody = proved(repository, stored.ark, "--no-verify")

    assert told.exit_code == 0
    assert "The records agree with each other; storage was not read." in told.stdout
    assert (custody["read"], custody["complete"], custody["bytes_read"]) == (False, False, 0)
    assert {file["verdict"] for file in custody["files"]} == {"not read"}
    change(repository, "UPDATE inv_files SET landed_digest = '00' WHERE pathname = 'producer/a.txt'")
    assert proved(repository, stored.ark, "--no-verify", code=4)


def test_the_auditor_is_told_job_batch_depositor_times_and_events(repository: Repository) -> None:
    facts = {"submitter": "ann/Ann", "note": "the photographs", "local_id": ("loc",)}
    stored = repository.recorded(repository.job(1, {"a.txt": "alpha"}, **facts))

    told = asked(repository, stored.ark)

    for word in (
        "none declared",
        "ann/Ann",
        "bid0000000001",
        "jid0000000001",
        "the photographs",
        "loc",
        "1.checkm",
    ):
        assert word in told.stdout
    assert "system/mrt-premis.xml" in told.stdout
    assert stored.url in told.stdout
    assert sha512("alpha") in told.stdout
    assert "Custody is proved: 9 files" in told.stdout


def test_forty_columns_are_enough(repository: Repository) -> None:
    stored = repository.recorded(repository.job(1, {"a rather long name of a photograph.txt": "alpha"}))
    damage(content(repository, stored, "producer/a rather long name of a photograph.txt"))

    told = asked(repository, stored.ark, COLUMNS="40")
    wide = asked(repository, stored.ark, COLUMNS="120")

    assert [line for line in told.stdout.splitlines() if len(line) > 40] == []
    lines = [line.split() for line in told.stdout.splitlines()]
    assert ["source", "none", "declared"] in lines
    assert ["download", sha512("alpha")[:8]] in lines
    assert ["storage", sha512("alpha")[:8], "v1"] in lines
    assert [line for line in wide.stdout.splitlines() if len(line) > 120] == []
    assert "at source" in wide.stdout


def test_of_very_many_files_those_with_problems_are_drawn_first(repository: Repository) -> None:
    stored = repository.recorded(
        repository.job(1, {f"{n:03}.txt": str(n) for n in range(drawn_object.MAX_FILES)})
    )
    damage(content(repository, stored, "producer/499.txt"))

    told = asked(repository, stored.ark)

    first = next(line for line in told.stdout.splitlines() if line.startswith("producer/"))
    assert first.startswith("producer/499.txt")
    assert "8 more files: --json has them all" in told.stderr
    assert len(proved(repository, stored.ark, code=4)["files"]) == drawn_object.MAX_FILES + 8


def test_a_stopped_reading_shows_the_result_so_far(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = repository.recorded(repository.job(1, {"a.txt": "alpha", "b.txt": "beta"}))
    pieces: list[int] = []

    view = object_view(
        known_object(repository.inventory, stored.ark),
        (),
        (1,),
        repository.storage,
        Reading(pieces.append, lambda: len(pieces) > 2),
    )
    drawn_object.described(view)

    assert [file.verdict for file in view.custody.files][:3] == ["agrees", "agrees", "not read"]
    assert exit_codes.of_custody(view.custody) == 130
    assert "Interrupted: 8 of 10 files not read." in capsys.readouterr().out


def test_an_attempt_that_is_over_while_storage_is_read_is_no_stopped_reading(repository: Repository) -> None:
    stored = repository.recorded(repository.job(1))

    def end(_: int) -> None:
        raise AttemptOver("the rights of the caller have ended")

    with pytest.raises(AttemptOver):
        prove(known_object(repository.inventory, stored.ark), (1,), repository.storage, Reading(end))


def test_the_first_ctrl_c_stops_the_reading_and_the_second_ends_the_command() -> None:
    with interruptible() as stopped:
        assert not stopped()
        signal.raise_signal(signal.SIGINT)
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_object_or_version_that_is_not_known_is_refused_with_a_hint(repository: Repository) -> None:
    ark = repository.recorded(repository.job(1, local_id=("loc-1",))).ark

    for arguments, message in (
        (("ark:/99999/unknown",), "the inventory has no object ark:/99999/unknown"),
        (("nonsense",), "the inventory has no object nonsense"),
        (
            ("jid0000000001",),
            "is the id of a job, not of an object: the status of the job shows the object's ARK",
        ),
        (("jid0000000001",), "arkline status jid0000000001"),
        ((ark, "--version", "3"), f"the inventory has no version 3 of {ark}; it has 1"),
        ((ark, "--version", "1", "--all-versions"), "cannot be combined"),
    ):
        told = asked(repository, *arguments)
        assert (told.exit_code, told.stdout) == (2, ""), arguments
        assert message in told.stderr
    for name in (ark.replace("ark:/", "ARK:"), ark.rpartition("/")[2], "loc-1", "LOC-1"):
        assert asked(repository, name, "--no-verify").exit_code == 0


def test_a_local_id_of_two_owners_names_no_object(repository: Repository) -> None:
    ark = repository.recorded(repository.job(1, local_id=("loc-1",))).ark
    repository.inventory.record(recording(owner=OTHER_OWNER, local_id=("loc-1",), jid="jid0000000009"))

    told = asked(repository, "loc-1", "--no-verify")

    assert told.exit_code == 2
    assert f"'loc-1' names more than one object: give the ARK, {ARK} or {ark}" in told.stderr


def test_a_local_id_that_is_the_end_of_another_ark_hides_no_object(repository: Repository) -> None:
    first = repository.recorded(repository.job(1)).ark
    short = first.rpartition("/")[2]
    second = repository.recorded(repository.job(2, local_id=(short,))).ark

    told = asked(repository, short, "--no-verify")

    assert told.exit_code == 2
    assert f"'{short}' names more than one object: give the ARK, {second} or {first}" in told.stderr


def test_an_inventory_that_is_not_there_is_not_made(repository: Repository, tmp_path: Path) -> None:
    told = asked(repository, "ark:/99999/x", ARKLINE_HOME=str(tmp_path / "typo"))

    assert told.exit_code == 2
    assert "there is no inventory at" in told.stderr
    assert not (tmp_path / "typo").exists()


def test_other_storage_than_the_workers_does_not_prove_a_loss(repository: Repository, tmp_path: Path) -> None:
    ark = repository.recorded(repository.job(1)).ark

    unmounted = asked(repository, ark, ARKLINE_STORAGE_ROOT=str(tmp_path / "unmounted"))
    other = asked(repository, ark, ARKLINE_STORAGE_SERVICE_URL="http://127.0.0.1:1/store")

    assert unmounted.exit_code == 3
    assert "is not an OCFL storage root" in unmounted.stderr
    assert other.exit_code == 2
    assert "use the storage settings of the workers" in other.stderr


def test_custody_is_proved_through_a_bucket(repository: Repository, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue("s3_server")
    settings = server.settings()
    repository.storage = server.storage(settings)
    stored = repository.recorded(repository.job(1, {"a.txt": "alpha"}))
    root = environment(settings)

    sound = asked(repository, stored.ark, **root)
    bucket = settings.s3_root.split("/")[2]
    listed = server.client.list_objects_v2(Bucket=bucket)["Contents"]
    (key,) = (each["Key"] for each in listed if each["Key"].endswith("/producer/a.txt"))
    server.client.put_object(Bucket=bucket, Key=key, Body=b"other")
    broken = asked(repository, stored.ark, **root)

    assert (sound.exit_code, broken.exit_code) == (0, 4), broken.output
    assert "Custody is proved" in sound.stdout
    assert f"To do: restore s3://{bucket}/{key} from a copy of the storage" in broken.stdout
    assert asked(repository, stored.ark).exit_code == 2


@pytest.mark.parametrize("listed", [None, '[{"path": "a.t'])
def test_what_is_lost_with_working_storage_is_read_back_before_it_is_recorded(
    repository: Repository, listed: str | None
) -> None:
    job = repository.job(1, {"a.txt": "alpha"})
    stored = repository.work(job)
    workspace = Workspace.of(job, repository.settings.working)
    workspace.stored.unlink()
    if listed is None:
        workspace.downloaded.unlink()
    else:
        workspace.downloaded.write_text(listed)
    known = job.model_copy(update={"identifiers": repository.identifiers(job)})
    done = record.work(known, repository.services())

    assert str(done.message).endswith("; the list of its downloaded files is lost")

    found = of_file(proved(repository, stored.ark), "producer/a.txt")

    assert (found["source"]["origin"], found["download"]) == ("not recorded", None)
    assert found["storage"]["read_back"] is not None
