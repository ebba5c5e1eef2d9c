import os
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoints.stack import java
from tools import for_tests, servers
from tools.for_tests import Program
from tools.servers import Machine, Way, ways

ROOT = Path(__file__).parents[2]
PLAIN = {"root": False, "apt": False, "sudo": False, "brew": False, "may_ask": False, "ci": False}


def machine(**facts: bool) -> Machine:
    return Machine(**{**PLAIN, **facts})


def test_root_on_debian_installs_at_once() -> None:
    assert ways(machine(root=True, apt=True, sudo=True))[0] is Way.APT


def test_sudo_is_used_when_a_person_can_answer() -> None:
    assert ways(machine(apt=True, sudo=True, may_ask=True)) == (Way.SUDO, Way.UNPACK)


def test_sudo_is_used_in_continuous_integration() -> None:
    assert ways(machine(apt=True, sudo=True, ci=True))[0] is Way.SUDO


def test_nothing_runs_as_root_when_no_person_can_answer() -> None:
    assert ways(machine(apt=True, sudo=True)) == (Way.UNPACK,)


def test_packages_are_unpacked_without_root() -> None:
    assert ways(machine(apt=True)) == (Way.UNPACK,)


def test_homebrew_is_not_run_as_root() -> None:
    assert ways(machine(brew=True)) == (Way.BREW,)
    assert ways(machine(brew=True, root=True)) == ()


@pytest.mark.parametrize(
    ("facts", "allowed"),
    [
        ({"root": True}, True),
        ({"sudo": True, "ci": True}, True),
        ({"sudo": True, "may_ask": True}, False),
        ({"ci": True}, False),
    ],
)
def test_programs_for_tests_are_installed_only_by_root_and_in_ci(
    facts: dict[str, bool], allowed: bool
) -> None:
    assert for_tests.may_install(machine(apt=True, **facts)) is allowed
    assert not for_tests.may_install(machine(**facts))


def test_a_user_without_rights_reads_which_programs_are_missing() -> None:
    output: list[str] = []
    here = Program("bash", "bash", lambda: True)
    away = Program("postgresql", "PostgreSQL", lambda: False)

    for_tests.ensure(machine(apt=True, sudo=True, may_ask=True), output.append, (here, away))
    for_tests.ensure(machine(apt=True), output.append, (here,))

    assert output == ["some tests need PostgreSQL, which is not installed: apt-get install postgresql"]


def test_the_advice_names_every_way_and_what_was_tried() -> None:
    text = servers.advice(["brew: no network"])

    for part in ("tried brew: no network", "libzookeeper-java", "brew install", "ARKLINE_ZK_HOSTS"):
        assert part in text


def test_what_runs_first_imports_the_standard_library_alone() -> None:
    question = (
        "import sys; sys.path.insert(0, '.'); import tools.bootstrap; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    )
    isolated = [sys.executable, "-I", "-S", "-c", question]

    output = subprocess.run(isolated, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert set(output.split()) <= {"__main__", "entrypoints", "tools"}


@pytest.mark.parametrize(("arguments", "code"), [((), 0), (("--help",), 0), (("fly",), 2)])
def test_usage_needs_no_installation(arguments: tuple[str, ...], code: int) -> None:
    done = subprocess.run(
        ["./dev", *arguments],
        cwd=ROOT,
        env={**os.environ, "ARKLINE_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code
    assert "usage: ./dev COMMAND" in (done.stderr if code else done.stdout)


def test_a_program_that_fails_is_not_java(tmp_path: Path) -> None:
    stub = tmp_path / "java"
    stub.write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)

    assert not java.runs(str(stub))
    assert not java.runs(str(tmp_path / "none"))


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)

    assert java.find_program({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"}) == str(program)


def test_a_given_class_path_comes_first() -> None:
    assert java.find_classpath({"ZOOKEEPER_CLASSPATH": "/a.jar", "ZOOKEEPER_HOME": "/b"}) == "/a.jar"
    assert java.find_classpath({"ZOOKEEPER_HOME": "/b"}) == "/b/lib/*"
