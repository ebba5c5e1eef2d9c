"""What could not be read again is not written, and what cannot be read names its remedy and is kept aside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import Action, Remedy
from pipeline.principal import Interface
from pipeline.records import EXCERPT, DamagedNode, HistoryEntry, JobStatus
from pipeline.states import Event, JobState
from zkstate import codec
from zkstate.errors import Corrupt, Unwritable


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
