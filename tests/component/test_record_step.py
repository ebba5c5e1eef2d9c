import multiprocessing
import os
import signal
from dataclasses import dataclass, replace
from hashlib import sha512
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest

from pipeline.attempt import CheckedAttempt
from pipeline.description import anvl
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.notify.callback import HttpCallback
from pipeline.outcome import AttemptOver, Deposited, ObjectDescription, StepFailed
from pipeline.records import Job, PayloadType, SubmissionMode
from pipeline.states import FailureKind, JobState
from pipeline.steps import notify, record
from pipeline.steps.context import StepContext
from pipeline.working_storage.workspace import DownloadedFile, Workspace, write_stored
from tests.servers.receiver import Receiver
from tests.support.memory_record import MemoryJobRecord
from tests.support.ocfl_fixture import ARK, OcflFixture
from tests.support.records import jid
from tests.support.step_context import marked_settings, services, working_job

FORK = multiprocessing.get_context("fork")

PROFILE = """\
owner: ark:/99999/fk4owner
collections: [ark:/99999/fk4first, ark:/99999/fk4second]
"""

ERC = anvl.write_erc(
    (("who", "Seneca, Tracy"), ("what", "50% off"), ("when", ""), ("where", ARK), ("where", "loc-1"))
)


@dataclass
class Site:
    """A repository on one disk, with a stored version to record."""

    home: Path
    depot: OcflFixture
    services: StepContext
    inventory: SqlInventory

    def job(self, state: JobState = JobState.RECORDING, **facts: object) -> Job:
        given = {"primary_id": ARK, "local_id": ("loc-1",), **facts}
        return working_job(
            self.services.settings, state, PayloadType.FILE, "http://source.example/a.jpg", **given
        )

    def described(self) -> InventoryObject:
        found = self.inventory.describe_object(ARK)
        assert found is not None
        return found

    def profile(self, text: str) -> None:
        (self.home / "profiles" / "demo.yaml").write_text(text)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    settings = marked_settings(tmp_path, profiles=tmp_path / "profiles")
    (tmp_path / "profiles").mkdir()
    depot = OcflFixture(tmp_path)
    inventory = open_inventory(settings.inventory)
    given = replace(
        services(settings),
        storage=depot.storage,
        inventory=inventory,
        callback=HttpCallback(settings, pause=0.01),
    )
    made = Site(tmp_path, depot, given, inventory)
    made.profile(PROFILE)
    return made


def test_a_stored_version_is_recorded_with_what_the_profile_and_the_job_say(site: Site) -> None:
    job = site.job(submitter="ann/Ann", note="the photographs", payload_name="a.jpg")
    version = site.depot.store(job.jid, {"producer/a.jpg": "pixels", "system/mrt-erc.txt": "erc:"})
    workspace = Workspace.of(job, site.services.settings.working)
    write_stored(workspace, version)
    Workspace.of(job, site.services.settings.working).write_downloaded(
        (DownloadedFile(path="a.jpg", size=6, sha512=sha512(b"pixels").hexdigest()),)
    )
    done = record.work(job, site.services)

    found = site.described()
    assert done.message == f"{ARK} version 1: 1 deposited file and 1 of the repository, 10 new bytes"
    assert done.deposited == Deposited(files=2, bytes=10)
    assert (found.owner, found.collections) == (
        "ark:/99999/fk4owner",
        ("ark:/99999/fk4first", "ark:/99999/fk4second"),
    )
    assert (found.local_id, found.object_type) == (("loc-1",), "MRT-curatorial")
    (recorded,) = found.versions
    assert (recorded.number, recorded.jid, recorded.bid) == (1, job.jid, job.bid)
    assert (recorded.submitter, recorded.note, recorded.payload_name) == (
        "ann/Ann",
        "the photographs",
        "a.jpg",
    )
    assert (recorded.storage_url, recorded.created) == (version.url, version.created)


def test_what_is_entered_is_not_judged_again_by_a_profile_that_was_changed_since(site: Site) -> None:
    job = site.job()
    site.depot.store(job.jid, {"producer/a.jpg": "pixels"})
    record.work(job, site.services)
    site.profile("owner: ark:/99999/fk4other\ncollections: ark:/99999/fk4first\n")

    record.work(job, site.services)

    assert site.described().owner == "ark:/99999/fk4owner"
    assert len(site.described().versions) == 1


@pytest.mark.parametrize("working", [ERC, None, b"erc:\nwhat: of an attempt that came too late\n"])
def test_the_description_that_was_stored_is_the_one_recorded(site: Site, working: bytes | None) -> None:
    job = site.job(erc_what="as submitted")
    version = site.depot.store(job.jid, {"producer/a.jpg": "pixels", "system/mrt-erc.txt": ERC.decode()})
    workspace = Workspace.of(job, site.services.settings.working)
    if working is not None:
        write_stored(workspace, version, working)
    done = record.work(job, site.services)

    assert done.description == ObjectDescription(who="Seneca, Tracy", what="50% off", where=f"{ARK}; loc-1")
    assert site.described().erc == (
        ("who", "Seneca, Tracy"),
        ("what", "50% off"),
        ("where", ARK),
        ("where", "loc-1"),
    )


def test_without_its_working_directory_a_job_is_recorded_as_storage_knows_it(site: Site) -> None:
    job = site.job(erc_who="Tracy Seneca", erc_what="Husky Chicken")
    site.depot.store(job.jid, {"producer/a.jpg": "pixels"})
    record.work(job, site.services)

    found = site.described()
    assert [version.jid for version in found.versions] == [job.jid]
    assert found.erc == (
        ("who", "Tracy Seneca"),
        ("what", "Husky Chicken"),
        ("where", ARK),
        ("where", "loc-1"),
    )


def test_a_note_of_another_jobs_version_is_not_believed(site: Site) -> None:
    job = site.job()
    other = site.depot.store(jid(9), {"producer/b.jpg": "other pixels"})
    site.depot.store(job.jid, {"producer/a.jpg": "pixels"})
    write_stored(Workspace.of(job, site.services.settings.working), other)
    record.work(job, site.services)

    (recorded,) = site.described().versions
    assert (recorded.number, recorded.jid) == (2, job.jid)


@pytest.mark.parametrize(
    ("name", "mime_type"),
    [
        ("a.jpg", "image/jpeg"),
        ("A.TIF", "image/tiff"),
        ("data:text,x.xml", "text/xml"),
        ("a.tar.gz", "application/gzip"),
        ("README", "application/octet-stream"),
    ],
)
def test_the_format_of_a_file_is_guessed_from_its_name(site: Site, name: str, mime_type: str) -> None:
    job = site.job()
    site.depot.store(job.jid, {f"producer/{name}": "bytes"})
    record.work(job, site.services)

    assert site.described().versions[0].files[0].mime_type == mime_type


def test_files_of_an_earlier_version_are_recorded_as_carried_over(site: Site) -> None:
    site.depot.store(jid(9), {"producer/a.jpg": "pixels"})
    job = site.job()
    site.depot.store(job.jid, {"producer/b.jpg": "more pixels"}, SubmissionMode.UPDATE)
    record.work(job, site.services)

    (recorded,) = site.described().versions
    assert {file.path: file.added for file in recorded.files} == {
        "producer/a.jpg": False,
        "producer/b.jpg": True,
    }


def test_recording_twice_is_recording_once(site: Site) -> None:
    job = site.job()
    site.depot.store(job.jid, {"producer/a.jpg": "pixels"})
    record.work(job, site.services)
    first = site.described()
    record.work(job, site.services)

    assert site.described() == first


def _record_and_say_so(site: Site, job: Job, pipe: Pipe) -> None:
    record.work(job, site.services)
    pipe.send("recorded")
    signal.pause()


def test_a_worker_killed_after_recording_leaves_nothing_for_the_next_to_repeat(site: Site) -> None:
    job = site.job()
    site.depot.store(job.jid, {"producer/a.jpg": "pixels"})
    here, there = FORK.Pipe()
    child = FORK.Process(target=_record_and_say_so, args=(site, job, there))
    child.start()
    assert here.recv() == "recorded"
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    first = site.described()
    record.work(job, site.services)

    assert site.described() == first


def test_an_attempt_that_is_over_records_nothing(site: Site) -> None:
    job = site.job()
    site.depot.store(job.jid, {"producer/a.jpg": "pixels"})

    def over() -> None:
        raise AttemptOver("the lock is lost")

    with pytest.raises(AttemptOver):
        record.work(job, replace(site.services, attempt=CheckedAttempt(over)))
    assert site.inventory.describe_object(ARK) is None


def test_a_job_whose_version_storage_does_not_have_needs_an_operator(site: Site) -> None:
    with pytest.raises(StepFailed, match=f"storage has no version of {ARK} from {jid(1)}") as failure:
        record.work(site.job(), site.services)
    assert failure.value.kind is FailureKind.SYSTEM


def test_a_job_without_an_ark_needs_an_operator(site: Site) -> None:
    with pytest.raises(StepFailed, match="has no ARK") as failure:
        record.work(site.job(primary_id=None), site.services)
    assert failure.value.kind is FailureKind.SYSTEM


def test_a_profile_that_is_gone_needs_an_operator(site: Site) -> None:
    job = site.job()
    site.depot.store(job.jid, {"producer/a.jpg": "pixels"})
    (site.home / "profiles" / "demo.yaml").unlink()

    for step in (record, notify):
        with pytest.raises(StepFailed, match="there is no profile 'demo'") as failure:
            step.work(job, site.services)
        assert failure.value.kind is FailureKind.SYSTEM


def test_a_profile_without_a_callback_is_soon_done_with(site: Site) -> None:
    assert notify.work(site.job(JobState.NOTIFY), site.services).message == "the collection has no callback"


def test_the_depositors_system_is_told_the_ark_and_the_version(site: Site, receiver: Receiver) -> None:
    site.profile(f"{PROFILE}callback_url: {receiver.url(login='ann:secret@')}\nnotification_format: xml\n")
    site.depot.store(jid(9), {"producer/a.jpg": "pixels"})
    job = site.job(JobState.NOTIFY)
    site.depot.store(job.jid, {"producer/b.jpg": "pixels too"})
    done = notify.work(job, site.services)

    (request,) = receiver.received
    assert b"<job:versionID>2</job:versionID>" in request.raw
    assert f"<job:primaryID>{ARK}</job:primaryID>".encode() in request.raw
    assert done.message == "callback delivered to 127.0.0.1"


def test_nobody_is_told_by_an_attempt_that_another_has_followed(site: Site, receiver: Receiver) -> None:
    site.profile(f"{PROFILE}callback_url: {receiver.url()}\n")
    job = site.job(JobState.NOTIFY)
    job_record = MemoryJobRecord()
    job_record.owner[job.jid] = job.version + 1

    with pytest.raises(AttemptOver):
        notify.work(job, replace(site.services, job_record=job_record))
    assert receiver.received == []


def test_a_callback_that_fails_fails_the_step(site: Site, receiver: Receiver) -> None:
    site.profile(f"{PROFILE}callback_url: {receiver.url()}\n")
    receiver.answers += [(404, {})]

    with pytest.raises(StepFailed, match="answered 404") as failure:
        notify.work(site.job(JobState.NOTIFY), site.services)
    assert failure.value.kind is FailureKind.SYSTEM
