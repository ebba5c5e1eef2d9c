"""The operator's token of a stack: in its folder, in the file for a shell, in no process of the stack."""

import os
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from entrypoints.cli.commands.standalone_command import show
from entrypoints.stack.home import StackInfo, environment_path, kept_token, write_info
from entrypoints.stack.services import Servers, StackConfig, child_environment, web
from operations.tokens import Authenticator
from pipeline.inventory.sql import open_inventory
from pipeline.principal import Interface, Role
from pipeline.settings import Settings


def test_the_token_of_an_operator_is_kept_until_the_inventory_is_lost(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "first")
    settings.home.mkdir()

    token = kept_token(tmp_path, settings)

    inventory = open_inventory(settings.inventory)
    principal = Authenticator(lambda: inventory).authenticate(token, Interface.API)
    assert (principal.role, principal.collections) == (Role.OPERATOR, None)
    assert kept_token(tmp_path, settings) == token
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    other = Settings(home=tmp_path / "second")
    other.home.mkdir()
    replaced = kept_token(tmp_path, other)
    assert replaced != token
    assert kept_token(tmp_path, other) == replaced


def test_a_shell_gets_the_address_and_the_token_and_the_stacks_processes_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    own = {"ARKLINE_HOME": str(tmp_path)}
    address = "http://127.0.0.1:1/"
    info = StackInfo(
        pid=os.getpid(),
        zk_hosts="z",
        broker_url="b",
        web_url=address,
        token="ark_secret",
        environment=own,
        services={},
    )

    write_info(tmp_path, info)

    assert environment_path(tmp_path).read_text().splitlines() == [
        f"export ARKLINE_HOME={tmp_path}",
        "export ARKLINE_STACK_URL=http://127.0.0.1:1",
        "export ARKLINE_TOKEN=ark_secret",
        "export ARKLINE_URL=http://127.0.0.1:1",
    ]
    monkeypatch.setenv("ARKLINE_TOKEN", "ark_secret")
    monkeypatch.setenv("ARKLINE_URL", address)
    config = StackConfig(home=tmp_path)
    passed = child_environment(config, Servers("127.0.0.1:1", "redis://127.0.0.1:2/0", ()))
    assert not {"ARKLINE_TOKEN", "ARKLINE_URL"} & set(passed)
    assert "ark_secret" not in " ".join(web(config, 1, passed).argv)


def test_the_start_prints_the_boards_address_and_a_login_that_the_board_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`./dev up` and `arkline standalone start` print what this shows."""
    (tmp_path / "run").mkdir()
    settings = Settings(home=tmp_path)
    info = StackInfo(
        pid=os.getpid(),
        zk_hosts="127.0.0.1:2181",
        broker_url="redis://:secret@127.0.0.1:6379/0",
        web_url="http://127.0.0.1:8000/",
        token=kept_token(tmp_path, settings),
        environment={},
        services={},
    )

    show(info, tmp_path)

    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    at = printed.index(["board", "http://127.0.0.1:8000/"])
    label, token = printed[at + 1]
    inventory = open_inventory(settings.inventory)
    principal = Authenticator(lambda: inventory).authenticate(token, Interface.WEB)
    assert (label, principal.role) == ("login", Role.OPERATOR)
    assert "secret@" not in str(printed)


def test_servers_without_pages_have_no_login(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    info = StackInfo(
        pid=os.getpid(), zk_hosts="127.0.0.1:2181", broker_url="redis://h:6379/0", environment={}, services={}
    )

    with (tmp_path / "start.out").open("w") as output, redirect_stdout(output):
        show(info, tmp_path)

    printed = (tmp_path / "start.out").read_text()
    assert "Redis" in printed
    assert "login" not in printed
