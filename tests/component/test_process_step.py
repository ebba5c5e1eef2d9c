import dataclasses
import hashlib
import itertools
import shutil
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from ocfl import StorageRoot

from pipeline.attempt import Attempt, CheckedAttempt
from pipeline.fixity import StoredVersion
from pipeline.outcome import AttemptOver, ServiceDown, StepFailed
from pipeline.records import HistoryEntry, Identifiers, Job, PayloadType, SubmissionMode
from pipeline.states import Event, FailureKind, JobState
from pipeline.steps import download, estimate, pending, process, provision, record, system_files
from pipeline.storage.ocfl.storage import OcflStorage
from pipeline.working_storage import mount
from pipeline.working_storage.workspace import Workspace
from tests.support import arks, nightly
from tests.support.records import AT
from tests.support.repository import OWNER, Repository
from tests.support.schemas import assert_valid
from tests.support.step_context import UNUSED
from tests.support.stores import rewrite

UPDATE = SubmissionMode.UPDATE
KEY = "0123456789abcdef" * 2


def refused(repository: Repository, job: Job, kind: FailureKind, says: str) -> None:
    with pytest.raises(StepFailed, match=says) as failed:
        process.work(job, repository.services())
    assert failed.value.kind is kind


def paths(stored: StoredVersion) -> set[str]:
    return {file.path for file in stored.files}


def test_new_content_becomes_the_first_version_of_a_new_object(repository: Repository) -> None:
    job = repository.job(1, {"a name.txt": "a", "sub/b.txt": ""}, erc_who="Tracy", submitter="t@example.edu")

    stored = repository.work(job)

    assert stored.number == 1
    assert arks.is_valid(stored.ark)
    assert repository.identifiers(job) == Identifiers(primary_id=stored.ark, assigned=True)
    assert paths(stored) == {
        "producer/a name.txt",
        "producer/sub/b.txt",
        "system/mrt-dc.xml",
        "system/mrt-erc.txt",
        "system/mrt-ingest.txt",
        "system/mrt-manifest.txt",
        "system/mrt-membership.txt",
        "system/mrt-mom.txt",
        "system/mrt-owner.txt",
        "system/mrt-premis.xml",
    }
    assert f"who: Tracy\nwhat: (:unas)\nwhen: (:unas)\nwhere: {stored.ark}\n" in repository.text(
        stored, "system/mrt-erc.txt"
    )
    root = StorageRoot(root=str(repository.settings.storage))
    assert root.validate()
    assert (root.errors, root.good_objects) == ([], 1)


def test_the_storage_manifest_lists_every_other_file(repository: Repository) -> None:
    stored = repository.work(repository.job(1))

    rows = repository.text(stored, "system/mrt-manifest.txt").splitlines()[5:-1]

    assert {row.split(" | ")[5] for row in rows} == paths(stored) - {"system/mrt-manifest.txt"}


def test_small_files_of_our_own_are_not_written_to_working_storage_first(repository: Repository) -> None:
    job = repository.job(1)

    repository.work(job)

    folder = Workspace.of(job, repository.settings.working).folder
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
        "a.txt",
        "landing.json",
        "stored.json",
    ]


def test_a_large_file_of_our_own_is_stored_from_working_storage_and_is_the_same(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = repository.work(repository.job(1, {"a.txt": "a"}, erc_what="Husky"))
    monkeypatch.setattr(system_files, "IN_MEMORY", 10)
    job = repository.job(2, {"a.txt": "a"}, erc_what="Husky")

    stored = repository.work(job)

    assert (Workspace.of(job, repository.settings.working).system / "mrt-erc.txt").is_file()
    assert paths(stored) == paths(in_memory)
    assert repository.text(stored, "system/mrt-erc.txt") == repository.text(
        in_memory, "system/mrt-erc.txt"
    ).replace(in_memory.ark, stored.ark)


def test_the_manifest_that_was_submitted_is_kept(repository: Repository) -> None:
    job = repository.job(1)
    Workspace.of(job, repository.settings.working).manifest.write_text("#%checkm_0.7\n")

    assert repository.text(repository.work(job), "system/mrt-submission-manifest.txt") == "#%checkm_0.7\n"


def test_the_stored_manifest_has_no_secrets_of_urls_and_the_kept_one_stays_as_it_is(
    repository: Repository,
) -> None:
    row = "https://ann:word@x.org/a?id=7&{}=s3cret&v=%7C | md5 | 0123 | 5 |  | caf\u00e9.txt |\r\n"
    names = ("X-Amz-Signature", "X-Amz-Credential", "sig", "jwt", "code", "sas", "hmac", "ticket", "session")
    submitted = "".join(row.format(name) for name in (*names, "%73ig"))
    job = repository.job(1)
    manifest = Workspace.of(job, repository.settings.working).manifest
    manifest.write_bytes(submitted.encode())

    stored = repository.work(job)

    kept = repository.text(stored, "system/mrt-submission-manifest.txt")
    assert kept == submitted.replace("ann:word@", "...@").replace("s3cret", "...").replace("\r\n", kept[-1:])
    assert manifest.read_bytes() == submitted.encode()


def test_the_outcome_says_what_was_stored_where(repository: Repository) -> None:
    done = process.work(repository.job(1, primary_id="ark:/99999/given"), repository.services())

    assert done.message == "stored as version 1 of ark:/99999/given, 9 new files"


def test_content_without_a_file_is_refused_before_anything_is_minted(repository: Repository) -> None:
    refused(repository, repository.job(1, {}), FailureKind.CONTENT, "no file to store")
    assert not repository.job_record.counters


def test_a_profile_that_is_gone_is_the_operators_to_mend(repository: Repository) -> None:
    (repository.settings.profiles / "demo.yaml").unlink()
    refused(repository, repository.job(1), FailureKind.SYSTEM, "no profile 'demo'")


def test_a_description_that_cannot_be_read_stops_the_job_before_it_is_named(repository: Repository) -> None:
    refused(
        repository,
        repository.job(1, {"mrt-dc.xml": "<dc>"}),
        FailureKind.CONTENT,
        "mrt-dc.xml is not well-formed",
    )
    assert not repository.job_record.writes


def test_an_update_keeps_other_files_and_takes_out_what_is_listed(repository: Repository) -> None:
    files = {"a.txt": "a", "b c.txt": "b", "c.txt": "c"}
    ark = repository.work(repository.job(1, files)).ark
    update = {"c.txt": "new", "mrt-delete.txt": "\nb c.txt\r\n"}

    stored = repository.work(repository.job(2, update, primary_id=ark, submission_mode=UPDATE))

    producer = {path for path in paths(stored) if path.startswith("producer/")}
    assert producer == {"producer/a.txt", "producer/c.txt"}
    assert repository.text(stored, "producer/c.txt") == "new"
    assert repository.text(stored, "system/mrt-delete.txt") == "\nb c.txt\n"


def test_an_update_may_only_take_out(repository: Repository) -> None:
    ark = repository.work(repository.job(1, {"a.txt": "a", "b.txt": "b"})).ark

    stored = repository.work(
        repository.job(2, {"mrt-delete.txt": "b.txt\n"}, primary_id=ark, submission_mode=UPDATE)
    )

    assert {path for path in paths(stored) if path.startswith("producer/")} == {"producer/a.txt"}


def test_a_deletion_outside_the_object_is_refused_with_its_line(repository: Repository) -> None:
    job = repository.job(1, {"a.txt": "a", "mrt-delete.txt": "a.txt\n../b\n"}, submission_mode=UPDATE)

    refused(repository, job, FailureKind.CONTENT, r"producer/mrt-delete\.txt line 2: file name '\.\./b'")


def test_a_list_of_deletions_means_nothing_when_adding(repository: Repository) -> None:
    stored = repository.work(repository.job(1, {"mrt-delete.txt": "x"}))

    assert "producer/mrt-delete.txt" in paths(stored)


def stored_before(repository: Repository, **facts: Any) -> tuple[Job, StoredVersion]:
    """A job whose worker died after its version was stored; its content in working storage is gone."""
    first = {name: value for name, value in facts.items() if name != "redispatches"}
    job = repository.job(1, {"a.txt": "as stored"}, key=KEY, **first)
    stored = repository.work(job)
    shutil.rmtree(Workspace.of(job, repository.settings.working).folder)
    return job, stored


def recorded(repository: Repository, job: Job) -> str | None:
    """The job is processed and recorded by its next attempts; the message of the recording."""
    done = process.work(job, repository.services())
    assert done.event is Event.SUCCEED, done.message
    known = job.model_copy(update={"identifiers": repository.identifiers(job)})
    return record.work(known, repository.services()).message


GIVEN: dict[str, Any] = {"primary_id": "ark:/99999/given"}


@pytest.mark.parametrize("facts", [{}, GIVEN, {"local_id": ("loc-1",)}], ids=["minted", "given", "local id"])
def test_a_version_that_is_stored_is_recorded_although_its_content_is_gone(
    repository: Repository, facts: dict[str, Any]
) -> None:
    job, stored = stored_before(repository, **facts)

    message = recorded(repository, job)

    assert message is not None
    assert message.startswith(f"{stored.ark} version 1: ")
    assert repository.jobs_of(stored.ark) == [job.jid]


EARLIER = (
    HistoryEntry(state=JobState.PROCESSING, event=Event.SUCCEED),
    HistoryEntry(state=JobState.PROVISIONING, event=Event.DOWNLOAD_AGAIN),
    HistoryEntry(state=JobState.PROCESSING, event=Event.SUCCEED),
)


@pytest.mark.parametrize(
    ("facts", "history"),
    [({}, EARLIER), (GIVEN, EARLIER), ({**GIVEN, "redispatches": 1}, ())],
    ids=["minted", "given", "its worker was lost"],
)
def test_a_stored_version_is_not_judged_by_content_that_was_downloaded_after_it(
    repository: Repository, facts: dict[str, Any], history: tuple[HistoryEntry, ...]
) -> None:
    _, stored = stored_before(repository, **facts)
    other = {"a.txt": "other bytes", "mrt-erc.txt": "erc:\nwho: Later\nwhere: late-1\n"}
    again = repository.job(1, other, key=KEY, **facts).model_copy(update={"history": history})

    message = recorded(repository, again)

    assert str(message).endswith("; the list of its downloaded files is lost")
    (version,) = repository.described(stored.ark).versions
    digests = {file.path: file.digest for file in version.files}
    assert digests == {file.path: f"sha512:{file.sha512}" for file in stored.files}
    assert {file.provenance for file in version.files if file.path == "producer/a.txt"} == {None}
    assert version.downloaded is None
    assert repository.inventory.arks_of(OWNER, ("late-1",)) == {}
    assert repository.identifiers(again).local_id == ()


@pytest.mark.parametrize("step", [pending, estimate, provision, download])
@pytest.mark.parametrize("facts", [{}, GIVEN], ids=["minted", "given"])
def test_a_job_with_a_stored_version_that_is_resumed_at_an_earlier_step_fetches_nothing_and_waits_for_no_room(
    repository: Repository, step: Any, facts: dict[str, Any]
) -> None:
    job, _ = stored_before(repository, retry_count=1, **facts)
    resumed = job.model_copy(update={"space_needed": 1 << 60})
    context = dataclasses.replace(repository.services(), fetcher=UNUSED)

    done = step.work(resumed, context)

    assert done.event is (Event.ACQUIRE if step is pending else Event.SUCCEED)
    assert step is not provision or (done.space_needed, done.reservation.bytes) == (0, 0)


def test_a_record_that_forgot_the_ark_of_a_stored_version_gets_it_back_with_its_local_ids(
    repository: Repository,
) -> None:
    described = {"a.txt": "a", "mrt-erc.txt": "erc:\nwhere: loc-9\n"}
    stored = repository.work(repository.job(1, described, key=KEY))
    again = repository.job(1, {"a.txt": "other bytes"}, key=KEY)
    repository.job_record.forget(again)

    recorded(repository, again)

    assert repository.jobs_of(stored.ark) == [again.jid]
    assert repository.described(stored.ark).local_id == ("loc-9",)


def test_a_restored_record_whose_job_is_in_the_inventory_records_it_again_and_reserves_nothing_new(
    repository: Repository,
) -> None:
    job, stored = stored_before(repository, **GIVEN)
    recorded(repository, job)
    repository.job_record.forget(job)
    again = repository.job(1, {"a.txt": "other", "mrt-erc.txt": "erc:\nwhere: late-1\n"}, key=KEY, **GIVEN)

    recorded(repository, again)

    assert repository.jobs_of(stored.ark) == [job.jid]
    assert repository.inventory.arks_of(OWNER, ("late-1",)) == {}


def test_a_stored_version_that_is_damaged_fails_its_job_until_it_is_restored_and_is_then_recorded(
    repository: Repository,
) -> None:
    job, stored = stored_before(repository)
    damaged = repository.ocfl.root.object(stored.ark) / "v1/content/producer/a.txt"
    rewrite(damaged, b"as st0red")

    refused(repository, job, FailureKind.SYSTEM, "a.txt is damaged: .*; restore it, then resume the job")
    rewrite(damaged, b"as stored")

    assert recorded(repository, job)


def test_a_version_under_the_number_of_another_job_is_refused_and_not_recorded(
    repository: Repository,
) -> None:
    stored_before(repository, **GIVEN)
    other = repository.job(1, {"a.txt": "as stored"}, key="f" * 32, **GIVEN)

    refused(repository, other, FailureKind.SYSTEM, "the number jid0000000001 belongs to another job")


def _gone(repository: Repository, job: Job) -> Job:
    shutil.rmtree(Workspace.of(job, repository.settings.working).folder)
    return job


def _other_content(repository: Repository, job: Job) -> Job:
    repository.job(1, {"a.txt": "other", "mrt-erc.txt": "erc:\nwhere: late-1\n"})
    return job.model_copy(update={"history": EARLIER})  # of the second download


def _forgotten(repository: Repository, job: Job) -> Job:
    repository.job_record.forget(job)
    return job


def _of_status(**changes: int) -> Callable[[Repository, Job], Job]:
    return lambda _, job: job.model_copy(update={"status": job.status.model_copy(update=changes)})


def _recorded_before(repository: Repository, job: Job) -> Job:
    recorded(repository, job)
    return job


def _overtaken(repository: Repository, job: Job) -> Job:
    ark = repository.identifiers(job).primary_id
    repository.recorded(repository.job(2, {"b.txt": "later"}, key="e" * 32, primary_id=ark))
    return job


def _other_profile(repository: Repository, job: Job) -> Job:
    with (repository.settings.profiles / "demo.yaml").open("a") as profile:
        profile.write("new_versions: true\n")
    return job


# in the order in which they happen
AFTER_STORING: dict[str, Callable[[Repository, Job], Job]] = {
    "recorded before": _recorded_before,
    "a later version": _overtaken,
    "content gone": _gone,
    "source changed": _other_content,
    "another profile": _other_profile,
    "resumed": _of_status(retry_count=1),
    "worker lost": _of_status(redispatches=1),
    "record forgot the ARK": _forgotten,
}


KINDS: dict[str, dict[str, Any]] = {
    "minted": {"key": KEY},
    "given": {"key": KEY, **GIVEN},
    "minted, no key": {},
    "given, no key": GIVEN,
}


# every three faults always meet one kind of job, so every two meet three kinds at least; all kinds at night
@pytest.mark.parametrize(
    ("faults", "facts"),
    [
        pytest.param(
            faults,
            facts,
            id=f"{'+'.join(faults)}-{kind}",
            marks=() if (number + place) % len(KINDS) == 0 else nightly.case,
        )
        for number, faults in enumerate(itertools.combinations(AFTER_STORING, 3))
        for place, (kind, facts) in enumerate(KINDS.items())
    ],
)
def test_three_faults_after_a_version_was_stored_leave_one_version_recorded_as_it_was_stored(
    repository: Repository, faults: tuple[str, ...], facts: dict[str, Any]
) -> None:
    job = repository.job(1, {"a.txt": "as stored"}, **facts)
    stored = repository.work(job)
    for fault in faults:
        job = AFTER_STORING[fault](repository, job)

    recorded(repository, job)

    assert repository.jobs_of(stored.ark).count(job.jid) == 1
    first, *_ = repository.described(stored.ark).versions
    digests = {file.path: file.digest for file in first.files}
    assert digests == {file.path: f"sha512:{file.sha512}" for file in stored.files}
    assert repository.inventory.arks_of(OWNER, ("late-1",)) == {}


class _CountingStorage(OcflStorage):
    """Counts the questions whether a job has a version."""

    asked = 0

    def version_of(self, *given: Any) -> StoredVersion | None:
        self.asked += 1
        return super().version_of(*given)


@pytest.mark.parametrize("facts", [{}, GIVEN], ids=["minted", "given"])
def test_an_ordinary_first_attempt_asks_storage_for_its_version_once(
    repository: Repository, facts: dict[str, Any]
) -> None:
    counting = _CountingStorage(repository.settings.storage)
    repository.storage = counting

    repository.work(repository.job(1, key=KEY, **facts))

    assert counting.asked == 1


def test_a_job_without_a_key_whose_id_is_used_again_does_not_pass_for_stored(repository: Repository) -> None:
    repository.work(repository.job(1, primary_id="ark:/99999/given"))
    again = repository.job(1, {"b.txt": "other"}, primary_id="ark:/99999/given")

    refused(repository, again, FailureKind.SYSTEM, "the counter of job ids was reset")


@pytest.mark.parametrize(
    "later", [{"key": KEY}, {"submitted_at": AT + timedelta(seconds=1)}], ids=["key", "time"]
)
def test_a_resumed_job_without_a_key_does_not_take_the_version_of_a_later_job_with_its_number(
    repository: Repository, later: dict[str, Any]
) -> None:
    repository.work(repository.job(1, **GIVEN, **later))
    resumed = repository.job(1, {"b.txt": "other"}, retry_count=1, **GIVEN)

    refused(repository, resumed, FailureKind.SYSTEM, "the counter of job ids was reset")


def over_at(call: int) -> Attempt:
    """The attempt is over when it is asked for the `call`th time."""
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise AttemptOver("the lock is lost")

    return CheckedAttempt(check)


def test_a_job_that_is_interrupted_anywhere_is_stored_once_by_its_next_attempt(
    repository: Repository,
) -> None:
    interrupted = 0
    for number in range(1, 40):
        job = repository.job(number, local_id=(f"loc-{number}",))
        try:
            repository.work(job, over_at(number))
        except AttemptOver:
            interrupted += 1
        stored = repository.work(job)

        assert repository.jobs_of(stored.ark) == [job.jid]
        assert repository.inventory.arks_of(OWNER, (f"loc-{number}",)) == {f"loc-{number}": stored.ark}
        assert repository.job_record.counters["99999_fk4"] == number
        if interrupted < number:
            break
    assert interrupted > 5


def test_content_that_goes_while_it_is_stored_is_downloaded_again_for_the_same_ark(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = repository.job(1)
    content = Workspace.of(job, repository.settings.working).producer
    mint = repository.job_record.mint

    def minted_then_removed(*given: Any) -> str:
        ark = mint(*given)
        shutil.rmtree(content)
        return ark

    monkeypatch.setattr(repository.job_record, "mint", minted_then_removed)

    done = process.work(job, repository.services())

    assert done.event is Event.DOWNLOAD_AGAIN
    assert "is missing" in done.message
    assert repository.identifiers(job).primary_id is not None
    assert list(repository.settings.storage.rglob("0=ocfl_object_1.1")) == []


def test_an_attempt_that_another_has_taken_over_stores_nothing(repository: Repository) -> None:
    job = repository.job(1, primary_id="ark:/99999/given")
    repository.job_record.owner[job.jid] = job.version + 1

    with pytest.raises(AttemptOver):
        repository.work(job)
    assert repository.jobs_of("ark:/99999/given") == []


def test_the_object_is_held_alone_while_it_is_stored_and_no_longer(repository: Repository) -> None:
    stored = repository.work(repository.job(1, local_id=("loc-2", "loc-1")))

    assert repository.job_record.taken == [
        ("localid", f"loc-1_{OWNER}"),
        ("localid", f"loc-2_{OWNER}"),
        ("storage", stored.ark),
    ]
    assert not repository.job_record.busy


def test_the_stored_object_has_its_history_in_premis(repository: Repository) -> None:
    stored = repository.work(repository.job(1, {"a.txt": "a"}, local_id=("loc-1",)))

    document = repository.text(stored, "system/mrt-premis.xml")

    assert f"{stored.ark}/producer/a.txt" in document
    assert "local id loc-1" in document
    assert_valid(document.encode())


def test_a_containers_own_manifest_is_corroborated_before_anything_is_minted(repository: Repository) -> None:
    files = {"a.txt": "a", "mrt-manifest.txt": "not a manifest"}
    job = repository.job(1, files, payload_type=PayloadType.CONTAINER)

    refused(repository, job, FailureKind.CONTENT, "producer/mrt-manifest.txt")
    assert not repository.job_record.writes


def test_a_manifest_among_files_that_were_listed_one_by_one_is_just_a_file(repository: Repository) -> None:
    stored = repository.work(repository.job(1, {"mrt-manifest.txt": "x"}))

    assert "producer/mrt-manifest.txt" in paths(stored)


def test_what_was_not_checked_of_a_bag_is_remarked_and_not_claimed(repository: Repository) -> None:
    md5 = hashlib.md5(b"a").hexdigest()
    files = {
        "bagit.txt": "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        "manifest-md5.txt": f"{md5}  data/a.txt\n",
        "manifest-blake9.txt": "00  data/a.txt\n",
        "data/a.txt": "a",
    }
    job = repository.job(1, files, payload_type=PayloadType.CONTAINER)

    done = process.work(job, repository.services())

    not_checked = "'manifest-blake9.txt' not checked, because the algorithm is not known"
    assert done.remark == f"the bag: {not_checked}"
    assert f"1 payload files, md5; {not_checked}" in repository.text(
        repository.work(job), "system/mrt-premis.xml"
    )


def test_a_bag_that_is_not_valid_is_refused(repository: Repository) -> None:
    files = {"bag/bagit.txt": "BagIt-Version: 1.0\n", "bag/data/a.txt": "a"}
    job = repository.job(1, files, payload_type=PayloadType.CONTAINER)

    refused(repository, job, FailureKind.CONTENT, "'bag/bagit.txt' has no line 'Tag-File")


def test_a_bag_whose_files_were_deposited_one_by_one_is_checked(repository: Repository) -> None:
    files = {
        "bagit.txt": "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        "manifest-md5.txt": f"{hashlib.md5(b'a').hexdigest()}  data/a.txt\n",
        "data/a.txt": "a",
    }
    damaged = {**files, "data/a.txt": "b"}
    part = {name: files[name] for name in ("bagit.txt", "data/a.txt")}
    folder = PayloadType.OBJECT_MANIFEST

    stored = repository.work(repository.job(1, files, payload_type=folder))
    refused(repository, repository.job(2, damaged, payload_type=folder), FailureKind.CONTENT, "data/a.txt")
    repository.work(repository.job(3, part, payload_type=folder, submission_mode=UPDATE))

    assert "1 payload files, md5" in repository.text(stored, "system/mrt-premis.xml")


def test_an_embargo_is_kept_and_told_in_the_objects_history(repository: Repository) -> None:
    stored = repository.work(repository.job(1, {"a": "a", "mrt-embargo.txt": "embargoEndDate: 2030-01-31\n"}))

    assert "producer/mrt-embargo.txt" in paths(stored)
    assert "embargo until 2030-01-31" in repository.text(stored, "system/mrt-premis.xml")


def test_an_embargo_that_cannot_be_read_is_refused(repository: Repository) -> None:
    job = repository.job(1, {"a": "a", "mrt-embargo.txt": "embargoEndDate: soon\n"})

    refused(repository, job, FailureKind.CONTENT, "'soon' is not an ISO 8601 date")


@pytest.mark.parametrize("loss", ["folder", "file", "size", "list", "other release"])
def test_content_that_is_gone_from_working_storage_is_downloaded_again(
    repository: Repository, loss: str
) -> None:
    job = repository.job(1)
    mount.mark(repository.settings.working)
    workspace = Workspace.of(job, repository.settings.working)
    match loss:
        case "folder":
            shutil.rmtree(workspace.folder)
        case "file":
            (workspace.producer / "a.txt").unlink()
        case "size":
            (workspace.producer / "a.txt").write_text("")
        case "list":
            workspace.downloaded.unlink()
        case _:
            workspace.downloaded.write_text('{"files": {}}')

    done = process.work(job, repository.services())

    assert done.event is Event.DOWNLOAD_AGAIN
    assert "the content is downloaded again: " in done.message


def test_content_that_is_gone_again_and_again_is_the_operators_to_mend(repository: Repository) -> None:
    job = repository.job(1)
    Workspace.of(job, repository.settings.working).downloaded.unlink()
    again = HistoryEntry(state=JobState.PROVISIONING, event=Event.DOWNLOAD_AGAIN)
    resumed = HistoryEntry(state=JobState.PROCESSING, event=Event.RESUME)
    often = job.model_copy(update={"history": (again, again, again)})

    refused(repository, often, FailureKind.SYSTEM, "gone again .* see who removes files")
    once_more = often.model_copy(update={"history": (*often.history, resumed)})
    assert process.work(once_more, repository.services()).event is Event.DOWNLOAD_AGAIN


def test_content_that_is_behind_a_missing_mount_is_not_lost(repository: Repository) -> None:
    job = repository.job(1)
    shutil.rmtree(repository.settings.working)
    repository.settings.working.mkdir()
    repository.job_record.reserved = {job.jid: 0}

    with pytest.raises(ServiceDown, match="mount it"):
        process.work(job, repository.services())
