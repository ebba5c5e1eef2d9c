"""The limit of a check in the fleet: so many runs at once, whatever happens to those who do them."""

import threading

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.checks import CheckRule
from pipeline.outcome import Later, WaitKind
from pipeline.settings import Settings
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.fleet import places
from zkstate.fleet.places import place_of_check

ONE, TWO = CheckRule(name="clamav", at_once=1), CheckRule(name="clamav", at_once=2)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "CHECK_WAIT", 0.1)


def test_a_run_beyond_the_limit_waits_and_gets_the_place_that_is_released(session: Session) -> None:
    with place_of_check(session, "jid0000000001", UNATTENDED, ONE):
        with (
            pytest.raises(Later, match="of the check clamav that the fleet may do at once") as waits,
            place_of_check(session, "jid0000000002", UNATTENDED, ONE),
        ):
            raise AssertionError("two runs at once")
        with place_of_check(session, "jid0000000002", UNATTENDED, CheckRule(name="pronom", at_once=1)):
            pass  # another check has places of its own

    assert (waits.value.kind, waits.value.name) == (WaitKind.CHECK, "clamav")
    with place_of_check(session, "jid0000000002", UNATTENDED, ONE):
        assert len(session.children(paths.check_places("clamav"))) == 1
    assert session.children(paths.check_places("clamav")) == []


def test_another_limit_counts_from_the_next_run_on(session: Session) -> None:
    with (
        place_of_check(session, "jid0000000001", UNATTENDED, ONE),
        place_of_check(session, "jid0000000002", UNATTENDED, TWO),
        pytest.raises(Later),
        place_of_check(session, "jid0000000003", UNATTENDED, ONE),
    ):
        raise AssertionError("three runs at once")


def test_a_process_that_dies_gives_its_place_back(session: Session, settings: Settings) -> None:
    dying = connect(settings)
    held = places.acquire(dying, paths.check_places("clamav"), 1, "jid0000000001", threading.Event())
    assert held is not None
    assert len(session.children(paths.check_places("clamav"))) == 1

    dying.close()

    with place_of_check(session, "jid0000000002", UNATTENDED, ONE):
        pass


def test_a_check_without_a_limit_takes_no_place(session: Session) -> None:
    with place_of_check(session, "jid0000000001", UNATTENDED, CheckRule(name="clamav")):
        assert session.exists(paths.check_places("clamav")) is None
