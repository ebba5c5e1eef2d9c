"""Each command of docs/operators/production.md is executed by the drill of containers, or cannot be."""

from tests.support.fleet import PROJECT
from tests.support.pages import commands
from tools.containers.page import ELSEWHERE, PAGE, UP, executed


def test_the_drill_executes_every_command_but_those_that_need_a_cluster_systemd_or_grafana() -> None:
    left = [command for command in commands(PAGE) if command not in executed()]

    assert len(left) == len(ELSEWHERE) == 4
    assert executed()[0] == UP


def test_each_command_that_the_drill_leaves_out_is_on_the_page() -> None:
    for start in ELSEWHERE:
        assert any(command.startswith(start) for command in commands(PAGE)), start


def test_each_module_that_tests_what_a_command_uses_exists() -> None:
    modules = {path.stem for path in (PROJECT / "tests").rglob("test_*.py")}

    assert {name for _, named in ELSEWHERE.values() for name in named} <= modules
