import pytest
from pydantic import ValidationError

from pipeline.notify.batch_report import BatchReport, compose_report
from pipeline.records import HistoryEntry, JobConfiguration, PayloadType, Submission, SubmissionType
from pipeline.states import Event, FailureKind, JobState
from tests.support.records import a_batch, a_job, a_submission

BY_0_1_0 = {
    "profile_name": "demo",
    "payload_url": "https://x.edu/1.checkm",
    "payload_type": "object-manifest",
    "payload_name": "1.checkm",
}


def test_a_submission_is_written_with_the_fields_and_values_of_the_seeds() -> None:
    written = a_submission().model_dump(mode="json")

    assert (written["type"], written["payload_filename"]) == ("batch_manifest", "batch.checkm")
    assert not {"payload_type", "payload_name"} & set(written)
    assert Submission.model_validate(written) == a_submission()


@pytest.mark.parametrize(
    ("facts", "first", "name"),
    [
        ({}, True, "created"),
        ({"event": Event.RESUME}, False, "resume"),
        ({"kind": FailureKind.TRANSIENT, "message": "no answer"}, False, "try"),
        ({"message": "failure callback delivered to x.edu"}, False, "note"),
        ({"damaged": (), "kind": FailureKind.SYSTEM}, True, "repaired"),
    ],
)
def test_an_entry_of_a_history_is_named_also_without_an_event(
    facts: dict[str, object], first: bool, name: str
) -> None:
    entry = HistoryEntry.model_validate({"state": JobState.FAILED, **facts})

    assert entry.named(first=first) == name


def test_a_submission_of_the_first_release_is_read() -> None:
    submission = Submission.model_validate(BY_0_1_0)

    assert (submission.type, submission.payload_filename) == (SubmissionType.OBJECT_MANIFEST, "1.checkm")


def test_a_job_of_the_first_release_is_read_and_written_as_the_seeds_spell_it() -> None:
    configuration = JobConfiguration.model_validate(
        {**BY_0_1_0, "batch_id": "bid0000000001", "working_dir": "/w", "submission_type": "batch-manifest"}
    )

    assert configuration.payload_type is PayloadType.OBJECT_MANIFEST
    assert configuration.submission_type is SubmissionType.BATCH_MANIFEST
    assert configuration.model_dump(mode="json")["payload_type"] == "object_manifest"


def test_a_report_that_the_first_release_archived_is_read() -> None:
    report = compose_report(a_batch(), [a_job(1)])
    archived = report.model_dump(mode="json") | {"payload_type": "batch-manifest"}

    assert BatchReport.model_validate(archived) == report


@pytest.mark.parametrize("kind", SubmissionType)
def test_either_spelling_names_a_type(kind: SubmissionType) -> None:
    assert SubmissionType(kind.value) is SubmissionType(kind.label) is kind
    assert "_" not in kind.label


def test_a_type_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="box-manifest"):
        SubmissionType("box-manifest")


def test_a_batch_id_that_is_a_path_is_no_configuration() -> None:
    with pytest.raises(ValidationError, match="batch_id"):
        a_job(1, JobState.PENDING, batch_id="../../etc")
