import re
import shutil
import subprocess

from entrypoints.cli.command_table import ENTRIES
from tests.support.fleet import PROJECT
from tools.man_page import page

COMMAND = "python -m tools.man_page > entrypoints/cli/arkline.1"


def test_the_manual_page_that_the_wheel_has_is_current() -> None:
    assert (PROJECT / "entrypoints" / "cli" / "arkline.1").read_text() == page(), f"run: {COMMAND}"


def test_the_manual_page_describes_every_command_and_has_no_stray_request() -> None:
    text = page()

    described = re.findall(r"^\.SS arkline ((?:[a-z\\-]+ ?)+)", text, re.MULTILINE)
    names = {name.replace("\\-", "-").strip() for name in described}
    expected = {f"{entry.name} {name}".strip() for entry in ENTRIES for name in entry.commands or ("",)}
    assert expected == names
    requests = set(re.findall(r"^\.(\w+)", text, re.MULTILINE))
    assert requests == {"TH", "SH", "SS", "PP", "TP", "B"}
    assert "\\-\\-json" in text
    if tool := shutil.which("mandoc"):
        done = subprocess.run(
            [tool, "-T", "lint", "-W", "warning"], input=text, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout
