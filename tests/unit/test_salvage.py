"""Whatever bytes a damaged znode has, what is made of them can be read again, and keeps what was valid."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import Action, Remedy
from pipeline.principal import Interface
from pipeline.records import (
    EXCERPT,
    BatchHistoryEntry,
    BatchStatus,
    DamagedNode,
    HistoryEntry,
    Identifiers,
    JobConfiguration,
    JobStatus,
    Record,
    Submission,
)
from pipeline.states import BatchState, Event, JobState
from zkstate import codec, rebuild, salvage
from zkstate.errors import Corrupt, Unwritable

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([float("inf"), float("nan"), -1, 10**400, "²", "9" * 5000, "\x1b[2J", "\ud800"])
    | st.floats()
    | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def damaged(kind: type[Record]) -> st.SearchStrategy[bytes]:
    """Any bytes; JSON of any form; a record of which single fields have any value."""
    fields = st.dictionaries(st.sampled_from(sorted(kind.model_fields)), VALUES)
    return st.one_of(st.binary(max_size=200), VALUES.map(as_json), fields.map(as_json))


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


AROUND = rebuild.JobSurroundings(
    bid="bid0000000001",
    profile_name="demo",
    working_dir="/nowhere/bid0000000001/jid0000000001",
    version=7,
    queued=(JobState.DOWNLOADING, 3),
    history=(),
)
BATCH_AROUND = rebuild.BatchSurroundings(
    deposit={}, version=7, split=True, open=True, unended=True, jobs=3, reported=False, history=()
)


@given(damaged(JobConfiguration))
def test_a_configuration_is_rebuilt_and_its_directory_is_never_read(data: bytes) -> None:
    rebuilt = rebuild.configuration(data, AROUND)

    assert codec.decode(JobConfiguration, codec.encode(rebuilt), "/x") == rebuilt
    assert (rebuilt.batch_id, rebuilt.working_dir) == (AROUND.bid, AROUND.working_dir)


@given(damaged(Identifiers))
def test_identifiers_are_rebuilt(data: bytes) -> None:
    codec.decode(Identifiers, codec.encode(rebuild.identifiers(data)), "/x")


@given(damaged(JobStatus), st.booleans())
def test_a_status_is_rebuilt_in_the_state_of_its_queue_under_a_new_epoch(
    data: bytes, resumable: bool
) -> None:
    rebuilt = rebuild.job_status(data, AROUND, resumable=resumable)

    codec.decode(JobStatus, codec.encode(rebuilt), "/x")
    assert (rebuilt.status, rebuilt.priority) == AROUND.queued
    assert rebuilt.epoch > AROUND.version
    assert rebuilt.last_successful_status == (JobState.PROVISIONING if resumable else None)


@given(damaged(BatchStatus))
def test_a_status_of_a_batch_is_rebuilt_with_the_jobs_that_exist(data: bytes) -> None:
    rebuilt = rebuild.batch_status(data, BATCH_AROUND)

    codec.decode(BatchStatus, codec.encode(rebuilt), "/x")
    assert (rebuilt.status, rebuilt.created, rebuilt.total) == (BatchState.PROCESSING, 3, 3)


@given(damaged(Submission))
def test_a_submission_is_rebuilt(data: bytes) -> None:
    codec.decode(Submission, codec.encode(rebuild.submission(data, BATCH_AROUND)), "/x")


@given(st.binary(max_size=200) | st.lists(VALUES, max_size=4).map(as_json))
def test_a_history_keeps_its_valid_entries(data: bytes) -> None:
    entries = salvage.entries(HistoryEntry, data)

    codec.decode(tuple[HistoryEntry, ...], codec.encode_history(entries), "/x")


def test_valid_entries_stay_beside_a_damaged_one() -> None:
    whole = (BatchHistoryEntry(state=BatchState.PENDING), BatchHistoryEntry(state=BatchState.PROCESSING))
    first, second = (codec.encode(entry) for entry in whole)

    assert salvage.entries(BatchHistoryEntry, b"[%s,{},%s]" % (first, second)) == whole


def test_one_impossible_value_costs_its_field_alone() -> None:
    data = b'{"status":"downloading","attempt":4,"delay":null,"retry_count":-3,"message":"as before"}'

    rebuilt = rebuild.job_status(data, AROUND, resumable=True)

    assert (rebuilt.attempt, rebuilt.message, rebuilt.delay, rebuilt.retry_count) == (4, "as before", 0, 0)


@pytest.mark.parametrize("delay", [float("inf"), float("nan"), -1, 1e300])
def test_what_could_not_be_read_again_is_not_written(delay: float) -> None:
    status = JobStatus(status=JobState.DOWNLOADING).model_copy(update={"delay": delay})

    with pytest.raises(Unwritable, match=r"JobStatus that could not be read again \(delay: "):
        codec.encode(status)


def test_an_entry_that_could_not_be_read_again_is_not_written() -> None:
    entry = HistoryEntry(state=JobState.PENDING, event=Event.ACQUIRE, via=Interface.CLI)

    with pytest.raises(Unwritable, match="HistoryEntry"):
        codec.encode_history((entry, entry.model_copy(update={"state": None})))


@pytest.mark.parametrize("number", [-1, 10**16])
def test_a_number_that_could_not_be_read_again_is_not_written(number: int) -> None:
    with pytest.raises(Unwritable, match=str(number)):
        codec.encode_int(number)


@given(st.integers(0, 10**16 - 1))
def test_a_number_is_read_as_it_was_written(number: int) -> None:
    assert codec.decode_int(codec.encode_int(number), "/x") == number


@pytest.mark.parametrize(
    "data", [b"-1", "²".encode(), "٣".encode(), b"1_0", b" 1", b"9" * 5000, b"1e3", b"inf"]
)
def test_what_is_no_number_names_the_verb_that_replaces_it(data: bytes) -> None:
    with pytest.raises(Corrupt, match="/jobs/jid0000000001/space_needed should hold a number") as refused:
        codec.decode_int(data, "/jobs/jid0000000001/space_needed")

    assert refused.value.remedies == (Remedy(Action.REPAIR, "jid0000000001"),)


@given(st.binary(max_size=3 * EXCERPT))
def test_the_damaged_bytes_are_kept_up_to_a_limit(data: bytes) -> None:
    node = DamagedNode.of("/x", data)

    assert (node.size, len(node.excerpt) <= EXCERPT) == (len(data), True)
    assert DamagedNode.model_validate_json(node.model_dump_json()) == node
