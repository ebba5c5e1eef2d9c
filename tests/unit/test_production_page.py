"""Each command of docs/operators/production.md is executed by a test, or named for another one."""

from tests.e2e.test_documented_commands import PAGES, is_run
from tests.support.fleet import PROJECT
from tests.support.production_commands import BY_THE_DRILL, ELSEWHERE

COMMANDS = [command.strip() for command in PAGES["docs/operators/production.md"]]


def test_each_command_of_the_page_is_run_or_named() -> None:
    named = (*BY_THE_DRILL, *ELSEWHERE)
    left = [command for command in COMMANDS if not is_run(command) and not command.startswith(named)]

    assert left == []
    assert [command for command in COMMANDS if is_run(command)]


def test_each_named_command_is_on_the_page() -> None:
    assert [command for command in BY_THE_DRILL if command not in COMMANDS] == []
    assert [start for start in ELSEWHERE if not any(command.startswith(start) for command in COMMANDS)] == []


def test_each_test_that_is_named_exists() -> None:
    modules = {path.stem for path in (PROJECT / "tests").rglob("test_*.py")}

    assert set(ELSEWHERE.values()) <= modules
