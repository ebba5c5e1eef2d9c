"""The sentences of `arkline why`: every reason has one, for jobs and batches."""

from datetime import UTC, datetime

import pytest

from entrypoints.render.explanation import document, text
from entrypoints.render.remedies import command, hints
from operations.explanation import Explanation
from operations.reasons import Reason
from pipeline.errors import Action, Remedy


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("kind", ["job", "batch"])
def test_every_reason_is_put_into_words(kind: str, reason: Reason) -> None:
    found = Explanation(
        id="id1", kind=kind, reason=reason, state="pending", since=datetime.now(UTC), waits_for="x"
    )

    assert "has been pending for less than a second." in text(found)


def test_a_remedy_is_spelled_with_its_target() -> None:
    assert command(Remedy(Action.RESUME, "jid0000000001")) == "arkline resume jid0000000001"
    assert list(hints((Remedy(Action.START_BROKER),))) == ["start Redis"]


def test_the_document_has_the_facts_and_the_commands() -> None:
    found = Explanation(id="id1", kind="job", reason=Reason.QUEUE_PAUSED, remedies=(Remedy(Action.UNPAUSE),))

    shown = document(found)

    assert (shown["reason"], shown["commands"]) == ("queue-paused", ["arkline unpause"])
    assert shown["remedies"] == [{"action": "unpause", "target": "", "findings": []}]
