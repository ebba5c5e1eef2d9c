"""The record of who acted has the id of the request; records of earlier releases have none."""

import pytest

from pipeline.profiles.snapshot import Renewal
from pipeline.records import BatchHistoryEntry, HistoryEntry, RewrittenRecord
from zkstate import codec
from zkstate.fleet.holds import Hold
from zkstate.record.journal import JournalEntry

EARLIER: dict[type[RewrittenRecord], bytes] = {
    HistoryEntry: b'{"state": "held", "event": "hold", "by": "ann", "via": "api"}',
    BatchHistoryEntry: b'{"state": "held", "event": "hold", "by": "ann", "via": "api"}',
    JournalEntry: b'{"action": "hold", "by": "ann", "via": "api"}',
    Hold: b'{"by": "ann", "via": "api"}',
    Renewal: b'{"by": "ann", "via": "api"}',
}


@pytest.mark.parametrize("kind", EARLIER)
def test_a_record_without_a_request_id_is_read_and_written_without_one(kind: type[RewrittenRecord]) -> None:
    earlier = codec.decode(kind, EARLIER[kind], "/path")

    assert earlier.model_dump()["request_id"] is None
    assert b"request_id" not in codec.encode(earlier)


@pytest.mark.parametrize("kind", EARLIER)
def test_a_request_id_is_kept(kind: type[RewrittenRecord]) -> None:
    acted = codec.decode(kind, EARLIER[kind].replace(b"}", b', "request_id": "r-1"}'), "/path")

    assert codec.decode(kind, codec.encode(acted), "/path").model_dump()["request_id"] == "r-1"
