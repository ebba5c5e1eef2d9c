import errno
import json
import os
import socket
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import cast

import pytest
from typer.main import get_group
from typer.testing import CliRunner

from entrypoints.cli import command_table, exit_codes, selection
from entrypoints.cli.api import Client
from entrypoints.cli.command_table import ENTRIES, Entry, load
from entrypoints.cli.commands import object_commands
from entrypoints.cli.main import app, main
from entrypoints.cli.options import SharedOptions
from operations.board.values import BoardJob, JobPage
from pipeline.backup_files import partial_folder
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.records import now
from pipeline.states import JobState
from tests.servers.raw_answer import RawAnswer
from tests.support.cli import COMMAND, arkline
from tests.support.fleet import PROJECT

COMMANDS = [entry.name for entry in ENTRIES if not entry.commands]

runner = CliRunner()


def test_every_command_has_help_with_an_example_that_names_it() -> None:
    for command in COMMANDS:
        result = runner.invoke(app, [command, "--help"])

        assert result.exit_code == 0
        example = " ".join(result.output.partition("Example:")[2].split())
        assert example.startswith(f"arkline {command}"), command


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_table_has_the_first_line_of_the_commands_help(entry: Entry) -> None:
    assert load(entry.name).help.splitlines()[0] == entry.help


def test_the_table_lists_every_command_of_the_modules() -> None:
    declared = {
        name
        for module in {entry.module for entry in ENTRIES}
        for name, value in vars(import_module(f"entrypoints.cli.commands.{module}")).items()
        if hasattr(value, "example")
    }
    listed = {
        name.replace("-", "_")
        for entry in ENTRIES
        for name in ([f"{entry.name}_{command}" for command in entry.commands] or [entry.name])
    }

    assert declared == listed


def test_a_site_that_closes_the_connection_or_says_nothing_is_named_with_the_cause() -> None:
    with RawAnswer() as server, socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(ServiceUnreachable, match="the connection ended without an answer"):
            Client(server.url, "").request("GET", "/v1/status")
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServiceUnreachable, match="no answer in time"):
            Client(url, "", timeout=0.1).request("GET", "/v1/status")


def test_a_mistyped_command_gets_a_suggestion() -> None:
    assert "Did you mean 'status'?" in runner.invoke(app, ["statsu"]).stderr


def test_the_shell_completes_the_names_of_commands() -> None:
    group = get_group(app)
    with group.make_context("arkline", [], resilient_parsing=True) as context:
        completed = [found.value for found in group.shell_complete(context, "ti")]

    assert completed == ["timeline"]


PROGRAMS = {"worker", "beat", "flower"}
"""Commands that run until they are stopped, and answer nothing."""


def test_every_command_can_answer_in_json() -> None:
    for command in sorted({*COMMANDS} - PROGRAMS):
        assert "--json" in runner.invoke(app, [command, "--help"]).output, command


def _in_a_process(code: str, *arguments: str, **variables: str) -> list[str]:
    """The lines that this code writes in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=PROJECT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return result.stdout.splitlines()


def test_help_fits_a_terminal_of_sixty_columns() -> None:
    show_all = (
        "import sys\n"
        "from entrypoints.cli.main import app\n"
        "for command in sys.argv[1:]: app([command, '--help'], standalone_mode=False)\n"
    )

    assert [line for line in _in_a_process(show_all, *COMMANDS, COLUMNS="60") if len(line) > 60] == []


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]

    assert runner.invoke(app, ["--version"]).output == f"arkline {project['version']}\n"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_argument_and_option_says_what_it_is_for(entry: Entry) -> None:
    loaded = load(entry.name)
    commands = loaded.commands.values() if entry.commands else [loaded]

    unexplained = [
        f"{command.name} {given.name}"
        for command in commands
        for given in command.params
        if not getattr(given, "hidden", False) and not getattr(given, "help", "")
    ]

    assert unexplained == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--bogus"],
        ["status", "bid12"],
        ["why", "ark:/99999/fk4"],
        ["jobs", "--state", "nowhere"],
        ["jobs", "--older-than", "soon"],
        ["jobs", "--limit", "0"],
        ["nonsense"],
        ["submit", "http://example.org/a.txt"],
    ],
)
def test_a_wrong_word_on_the_command_line_is_wrong_usage(arguments: list[str]) -> None:
    result = runner.invoke(app, arguments)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["http://example.org/a.checkm"], "is a manifest: give its type"),
        (["ftp://example.org/a.txt"], "http and https only"),
        (["https://me:secret@example.org/a.txt"], "give a URL without one"),
        (["http://example.org/a.txt", "--digest", "md5:xyz"], "--digest: 'xyz' is not a md5 value"),
        (["http://example.org/a.txt", "--digest", "xyz"], "ALGORITHM:VALUE"),
        (["http://example.org/a.txt", "--type", "box"], "'box' is not one of file"),
        (["http://example.org/a.txt", "--mode", "box"], "--mode: Input should be 'add'"),
        (["http://example.org/a.txt", "--priority", "100"], "less than or equal to 99"),
    ],
)
def test_an_invalid_submission_is_refused_before_a_connection_is_opened(
    arguments: list[str], message: str
) -> None:
    result = runner.invoke(app, ["submit", "--profile", "demo", *arguments])

    assert result.exit_code == 2
    assert message in result.stderr
    assert "secret" not in result.stderr


def test_a_wrong_choice_is_said_without_the_words_of_a_library() -> None:
    said = runner.invoke(app, ["jobs", "--state", "nowhere"]).stderr

    assert "Invalid value for '--state' / '-s': 'nowhere' is not one of 'pending'," in said


def test_verbs_require_either_ids_or_a_filter() -> None:
    for arguments in ([], ["jid0000000001", "--state", "failed"]):
        result = runner.invoke(app, ["resume", *arguments])

        assert result.exit_code == 2
        assert "specify ids" in result.stderr


def test_the_message_names_an_invalid_setting() -> None:
    result = runner.invoke(app, ["status"], env={"ARKLINE_WORKING_THRESHOLD": "much"})

    assert result.exit_code == 2
    assert result.stderr.startswith("error: ARKLINE_WORKING_THRESHOLD: ")


def test_the_message_names_an_invalid_setting_that_has_an_earlier_name_too() -> None:
    result = runner.invoke(app, ["status"], env={"ARKLINE_DEAF_AFTER": "long"})

    assert result.exit_code == 2
    assert result.stderr.startswith("error: ARKLINE_STALLED_AFTER: ")


def test_a_list_invents_nothing_of_a_job_that_has_left_the_record() -> None:
    left = BoardJob(
        jid="jid0000000001",
        bid="bid0000000001",
        collection="demo",
        owner="token:ann",
        state=JobState.FAILED,
        priority=5,
        since=now(),
    )

    class OnePage:
        def get(self, *_: object, **__: object) -> JobPage:
            return JobPage(rows=(left,), total=1)

    (row,) = selection.jobs(cast(Client, OnePage()), SharedOptions(), 10, None).jobs

    assert row.profile == "demo"
    assert not {"retry_count", "local_id"} & row.model_dump(exclude_unset=True).keys()


def test_a_verb_without_jobs_names_its_own_options() -> None:
    held, resumed = (runner.invoke(app, [verb]).stderr for verb in ("hold", "resume"))

    assert held.rstrip().endswith("or select jobs by --batch, --profile or --older-than")
    assert "--batch, --profile, --state, --cause or --older-than" in resumed


ON_JOBS = ("hold", "fail", "approve", "reject")
ON_BATCHES_TOO = ("release", "resume", "delete")


@pytest.mark.parametrize("verb", [*ON_JOBS, *ON_BATCHES_TOO])
def test_the_help_of_a_verb_and_its_refusal_name_batches_if_it_takes_some(verb: str) -> None:
    kinds = "jobs" if verb in ON_JOBS else "jobs or batches"

    shown = " ".join(runner.invoke(app, [verb, "--help"]).output.split())

    assert f"{kinds.capitalize()}; or select jobs by options." in shown
    assert f"specify ids of {kinds}, or select jobs by" in runner.invoke(app, [verb]).stderr


@pytest.mark.parametrize("name", ["", "..", "a/../worker1@host", "worker1@host?x", "worker 1", "%2e%2e"])
def test_what_cannot_be_the_name_of_a_worker_is_refused_before_anything_is_asked(name: str) -> None:
    result = arkline("drain", name, code=exit_codes.REFUSED)

    assert f"'{name}' is no name of a worker: `arkline drain` lists the workers" in result.stderr


def test_ids_and_a_filter_are_refused_together() -> None:
    refused = runner.invoke(app, ["resume", "--batch", "bid0000000001", "jid0000000001"])

    assert (refused.exit_code, refused.stderr.rstrip().endswith(", not both")) == (2, True)


SLOW = (
    "celery",
    "kazoo",
    "kombu.utils.url",
    "redis",
    "requests",
    "sqlalchemy",
    "structlog",
    "yaml",
)


@pytest.fixture(scope="module")
def loaded_by_help() -> dict[str, list[str]]:
    """Command -> the modules that its help loads; the help of arkline itself has an empty name."""
    show_each = (
        "import json, os, sys\n"
        "from entrypoints.cli.main import main\n"
        "for command in ['', *sys.argv[1:]]:\n"
        "    if os.fork():\n"
        "        os.wait()\n"
        "        continue\n"
        "    sys.argv[1:] = [*command.split(), '--help']\n"
        "    try: main()\n"
        "    except SystemExit: pass\n"
        "    modules = [name for name, module in sys.modules.items() if type(module) is type(sys)]\n"
        "    print('loaded:', json.dumps([command, modules]), flush=True)\n"
        "    os._exit(0)\n"
    )
    lines = _in_a_process(show_each, *COMMANDS)
    return dict(json.loads(line.removeprefix("loaded: ")) for line in lines if line.startswith("loaded: "))


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_imports_no_slow_module(command: str, loaded_by_help: dict[str, list[str]]) -> None:
    slow = SLOW if command else (*SLOW, "pydantic", "rich")

    assert [name for name in loaded_by_help[command] if name in slow] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a full disk as a device")
@pytest.mark.parametrize("arguments", [["--help"], ["profile", "template"], ["submit", "--help"]])
def test_output_that_finds_no_room_on_its_disk_is_said_in_a_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "arkline", *arguments],
            cwd=PROJECT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: no space left on its disk\n"


def test_a_reader_that_ends_first_is_no_finding() -> None:
    unread, output = os.pipe()
    os.close(unread)
    done = subprocess.run(
        [*COMMAND, "profile", "template"], stdout=output, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(output)

    assert (done.returncode, done.stderr) == (exit_codes.UNREAD, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_command_whose_output_was_closed_ends_as_usual(closed: str) -> None:
    shell = ["sh", "-c", f'"$0" -m arkline profile template {closed}', sys.executable]

    done = subprocess.run(shell, cwd=PROJECT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("variable", ["ARKLINE_URL", "ARKLINE_PUBLIC_URL"])
def test_open_prints_the_address_of_the_page_and_opens_it_in_the_browser(
    tmp_path: Path, variable: str
) -> None:
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\nprintf %s "$1" > "$0.opened"\n')
    browser.chmod(0o755)
    variables = {**os.environ, "BROWSER": f"{browser} %s", variable: "https://deposit.example.org/"}

    done = subprocess.run(
        [*COMMAND, "open", "ark:/99999/fk4abc"], env=variables, capture_output=True, text=True, check=True
    )

    address = "https://deposit.example.org/find?q=ark%3A/99999/fk4abc"
    assert (done.stdout, (tmp_path / "browser.opened").read_text()) == (f"{address}\n", address)


def test_open_says_which_variable_has_the_address_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARKLINE_URL", raising=False)
    monkeypatch.delenv("ARKLINE_PUBLIC_URL", raising=False)

    assert "set ARKLINE_PUBLIC_URL" in arkline("open", "bid0000000001", code=2).output


def test_on_windows_the_command_line_names_the_other_ways(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as windows:
        windows.setattr(os, "name", "nt")
        with pytest.raises(SystemExit) as ended:
            main()

    assert ended.value.code == exit_codes.REFUSED
    assert "Subsystem for Linux (wsl --install)" in capsys.readouterr().err


def test_an_interrupt_while_modules_are_loaded_comes_when_they_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "interrupted_library.py").write_text(
        "import signal, threading\n"
        "signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n"
        "whole = all(range(1, 10_000))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(command_table, "_LIBRARIES", ("interrupted_library",))

    with command_table.deferring():
        library = import_module("interrupted_library")
        with pytest.raises(KeyboardInterrupt):
            command_table.load_all()

    assert library.whole


def test_a_backup_in_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UsageRefused, match=r"cannot be written: Not a directory; name another folder"):
        partial_folder(tmp_path / "file" / "backup")


def test_a_document_on_a_read_only_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)

    with pytest.raises(UsageRefused, match=r"premis\.xml cannot be written: Read-only file system"):
        object_commands._write([b"<premis/>"], tmp_path / "premis.xml")
