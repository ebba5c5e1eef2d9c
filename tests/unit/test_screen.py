"""Tables for people: on any terminal, each column that is shown can be read."""

from datetime import UTC, datetime

import pytest

from entrypoints.render import check_runs, screen
from entrypoints.render.screen import Column
from operations.objects.search import ObjectList
from pipeline.inventory.search.by_findings import FoundObject


@pytest.mark.parametrize("width", [40, 90, 100])
@pytest.mark.parametrize("place", ["wide", "long"])
def test_a_text_of_any_length_hides_no_other_column(
    place: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = Column[str]("text", lambda row: row, wide=place == "wide", long=place == "long")

    screen.table(
        ["word " * 80],
        Column("object", lambda _: "ark:/99999/fk4000000019"),
        text,
        Column("state", lambda _: "completed"),
    )

    shown = capsys.readouterr().out
    assert "ark:/99999/fk4000000019" in shown
    assert "completed" in shown


def test_an_object_has_its_title_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    found = FoundObject(
        "ark:/99999/fk4000000019", "South Mole light", datetime.now(UTC), (), False, (), date="1911"
    )

    check_runs.object_list(ObjectList(objects=(found,)), "")

    assert "South Mole" in capsys.readouterr().out
