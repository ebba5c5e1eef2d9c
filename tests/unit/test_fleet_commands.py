"""What `arkline worker`, `beat` and `flower` refuse, and which program they become."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from entrypoints.cli.commands import program_commands
from entrypoints.cli.main import app

runner = CliRunner()


class Became(Exception):
    """The program that the command would have become."""


@pytest.fixture(autouse=True)
def _programs_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(argv: tuple[str, ...]) -> None:
        raise Became(" ".join(argv[1:]))

    monkeypatch.setattr(program_commands, "become", refuse)
    monkeypatch.setattr("socket.gethostname", lambda: "host")
    monkeypatch.delenv("FLOWER_BASIC_AUTH", raising=False)


def program(*arguments: str) -> str:
    result = runner.invoke(app, ["--debug", *arguments])
    return result.stderr.partition("unexpected Became: ")[2].strip()


def test_a_worker_takes_every_queue_unless_some_are_named() -> None:
    assert " -Q " not in program("worker")
    assert program("worker").endswith("-m tasks.worker_program -c 4 -n worker@host")
    assert "-Q control,io -n worker@host" in program("worker", "-q", "io, control,io")
    assert "-c 2 -Q split -n split@host" in program("worker", "--queues", "split", "--processes", "2")
    assert "-n left@host" in program("worker", "--queues", "split", "--name", "left")


def test_the_check_asks_the_worker_that_the_same_options_start() -> None:
    assert program("worker", "--check", "--queues", "split").endswith("inspect ping -d split@host")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["worker", "--queues", "downloads"], "control, split, io, download, process"),
        (["worker", "--queues", ""], "no queue is named ''"),
        (["worker", "--name", "a b"], "is not a name"),
        (["worker", "--processes", "0"], "greater than or equal to 1"),
        (["flower", "--port", "99999"], "65535"),
        (["flower", "--conf", "/nonexistent.py"], "does not exist"),
        (["flower"], "FLOWER_BASIC_AUTH=user:password"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_possible(arguments: list[str], message: str) -> None:
    result = runner.invoke(app, arguments)

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", "").split())


def test_flowers_password_is_in_no_argument(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLOWER_BASIC_AUTH", "me:secret")

    started = program("flower", "--url-prefix", "/flower/", "--port", "5000")

    assert "--address=127.0.0.1 --port=5000 --read-only" in started
    assert "--url-prefix=flower" in started
    assert "secret" not in started
    monkeypatch.delenv("FLOWER_BASIC_AUTH")
    (tmp_path / "conf.py").touch()
    assert f"--conf={tmp_path}/conf.py" in program("flower", "--conf", f"{tmp_path}/conf.py")


def test_a_missing_flower_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWER_BASIC_AUTH", "me:secret")
    monkeypatch.setattr("importlib.util.find_spec", {}.get)

    result = runner.invoke(app, ["flower"])

    assert result.exit_code == 2
    assert "pip install 'arkline[flower]'" in result.stderr
