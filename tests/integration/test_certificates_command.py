"""`arkline certificates renew`, and servers that take what it renewed while they work."""

from pathlib import Path

from pipeline.settings import Settings
from tests.support import cli


def test_the_command_says_what_it_replaced(settings: Settings, tmp_path: Path) -> None:
    arguments = ("certificates", "renew", str(tmp_path), "--server", "redis=redis,192.0.2.1")
    first, second = cli.run(settings, *arguments), cli.run(settings, *arguments)

    assert "replaced redis/server.pem" in first.out
    assert (second.code, second.out) == (0, "nothing is old\n")
    assert cli.run(settings, *arguments, "--now").out == "replaced redis/server.pem\n"
    assert cli.run(settings, "certificates", "renew").code == 2
    assert cli.run(settings, "certificates", "renew", str(tmp_path), "--server", "trust=a").code == 2
