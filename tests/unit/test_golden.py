"""The promises to programs are kept, and no text for people changes without a reason."""

from collections.abc import Callable

import pytest

from tests.golden import __main__ as golden


@pytest.mark.parametrize(("name", "lines"), golden.PROMISES.items())
def test_every_promise_of_the_file_is_kept_and_every_new_one_is_in_it(
    name: str, lines: Callable[[], list[str]]
) -> None:
    file = (golden.FOLDER / name).read_text()

    assert golden.removed(file, lines()) == [], "this was promised: keep it"
    assert file == golden.written(lines()), "run: python -m tests.golden"


@pytest.mark.parametrize(("name", "compose"), golden.TEXTS.items())
def test_a_text_that_people_read_has_the_reason_for_its_present_state(
    name: str, compose: Callable[[], str]
) -> None:
    text = compose()

    (line,) = (
        line for line in golden.REASONS.read_text().splitlines() if line.startswith(golden.reason(name, text))
    )
    assert line.removeprefix(golden.reason(name, text)), "run: python -m tests.golden --because REASON"


@pytest.mark.parametrize("name", [name for name in golden.TEXTS if name.endswith(".txt")])
def test_the_file_of_a_text_is_current(name: str) -> None:
    assert (golden.FOLDER / name).read_text() == golden.TEXTS[name](), "run: python -m tests.golden"


def test_a_promise_that_is_changed_or_taken_away_is_named() -> None:
    assert golden.removed("kept\nchanged: text\ngone\n", ["kept", "changed: integer", "new"]) == [
        "changed: text",
        "gone",
    ]
