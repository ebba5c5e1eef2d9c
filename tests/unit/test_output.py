"""`-o table|json|name` is one option for all commands: json is `--json`, and name is one id on a line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from entrypoints.cli.command_table import ENTRIES, load
from entrypoints.cli.main import app
from entrypoints.render import screen
from pipeline.errors import UsageRefused
from tests.support.cli import arkline

FILES = {"object", "export", "manifest from-csv"}
"""Commands whose `-o` is a file."""


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "profiles"
    folder.mkdir()
    for name in ("harbour", "mole"):
        text = f"name: {name}\nowner: ark:/99999/j2000000\ncollections: [ark:/99999/m5000000]\n"
        (folder / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("ARKLINE_PROFILES", str(folder))
    monkeypatch.setenv("ARKLINE_HOME", str(tmp_path))
    return folder


def options() -> dict[str, set[str]]:
    """Each command -> its options."""
    described = {}
    for entry in ENTRIES:
        command = load(entry.name)
        for name in entry.commands or ("",):
            one = command.commands[name] if name else command
            described[f"{entry.name} {name}".strip()] = {option for p in one.params for option in p.opts}
    return described


def test_every_command_with_json_has_the_option_unless_its_option_is_a_file() -> None:
    described = options()

    with_json = {name for name in described if "--json" in described[name]}
    assert {name for name in described if "-o" in described[name]} == with_json | FILES


@pytest.mark.parametrize("name", ["jobs", "objects", "callback list", "token list", "status", "submit x"])
def test_an_unknown_value_is_refused_with_the_values(name: str) -> None:
    for given in (("-o", "yaml"), ("--output=ids",)):
        done = CliRunner().invoke(app, [*name.split(), *given])

        assert done.exit_code == 2
        assert all(f"'{value}'" in done.stderr for value in ("table", "json", "name")), done.stderr
    assert "'name'" not in CliRunner().invoke(app, ["history", "-o", "ids"]).stderr


def test_name_prints_one_id_on_a_line_and_json_is_json(profiles: Path) -> None:
    assert arkline("profile", "list", "-o", "name").stdout == "harbour\nmole\n"
    as_json = arkline("profile", "list", "-o", "json").stdout
    assert as_json == arkline("profile", "list", "--json").stdout
    assert [one["name"] for one in json.loads(as_json)["profiles"]] == ["harbour", "mole"]
    table = arkline("profile", "list", "-o", "table").stdout
    assert table == arkline("profile", "list").stdout
    assert table.startswith("profile")


def test_an_exit_code_is_the_same_whatever_is_printed(profiles: Path) -> None:
    (profiles / "bad.yaml").write_text("name: bad\n")

    assert arkline("profile", "list", "-o", "name", code=1).stdout == "bad\nharbour\nmole\n"


def test_what_contradicts_json_is_refused() -> None:
    done = CliRunner().invoke(app, ["jobs", "--json", "-o", "name"])

    assert (done.exit_code, "--json is the same as -o json" in done.stderr) == (2, True)


def test_an_answer_without_an_id_is_refused_instead_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with screen.answering(["jid", "bid"], alone=True):
        screen.emit({"bid": "bid0000000001"})
        with pytest.raises(UsageRefused, match="no ids"):
            screen.emit({"health": "ok"})
    with screen.answering(["jobs.jid"], alone=True):
        screen.emit({"jobs": []})
        screen.emit({"jobs": [{"jid": "jid1\x1b[31m"}]})

    out = capsys.readouterr().out
    assert out.startswith("bid0000000001\njid1")
    assert "\x1b" not in out
