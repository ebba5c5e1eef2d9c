"""`arkline top`: the board on a terminal and for scripts."""

from pipeline.settings import Settings
from pipeline.states import Event, FailureKind
from tests.support import cli, planting
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.record import jobs


def test_top_shows_counts_stops_and_causes_for_people_and_for_scripts(
    session: Session, settings: Settings
) -> None:
    _, jids = planting.split_batch(session, 3)
    planting.apply_event(session, jobs.load(session, jids[0]), Event.FAIL, FailureKind.CONTENT)
    holds.place(session, Hold(by="ann@here", reason="move of the disk"))

    people = cli.run(settings, "top", "--once")
    scripts = cli.run(settings, "top", "--once", "--json").json()

    assert people.code == 0, people.err
    for text in ("pending", "move of the disk", "keeps back 2 jobs", "was not recorded", "the depositor"):
        assert text in people.out
    assert (scripts["jobs"]["pending"], scripts["jobs"]["failed"]) == (2, 1)
    assert scripts["failures"][0]["example"] == jids[0]
    assert scripts["stops"]["pause"]["jobs"] == 2
    assert not scripts["freshness"]["stale"]


def test_json_without_once_is_refused(settings: Settings) -> None:
    assert cli.run(settings, "top", "--json").code == 2
