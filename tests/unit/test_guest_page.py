"""The page on guests shows the template as it is, and a program that works as the page says."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.conforming import passed

PROJECT = Path(__file__).parents[2]
GUEST = PROJECT / "examples" / "guest"
PAGE = (PROJECT / "docs" / "developers" / "guests.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_shows_the_files_of_the_template() -> None:
    shown = ("archive_guest/private_keys.py", "archive_guest/tape.py", "conforming.py")

    assert blocks("python") == [(GUEST / name).read_text() for name in shown]
    assert blocks("toml") == [(GUEST / "pyproject.toml").read_text()]


@pytest.mark.parametrize(
    ("text", "code", "verdict"), [("Name: a ferry\n", 0, None), ("a ferry\n", 1, "found"), ("", 1, "found")]
)
def test_the_program_of_the_page_says_its_verdict_by_exit_code_and_json(
    tmp_path: Path, text: str, code: int, verdict: str | None
) -> None:
    (program,) = blocks("sh")
    (tmp_path / "has-a-name.sh").write_text(program)
    (tmp_path / "file").write_text(text)

    run = subprocess.run(
        ["sh", tmp_path / "has-a-name.sh", tmp_path / "file"], capture_output=True, text=True, check=False
    )

    assert run.returncode == code
    assert [json.loads(line)["verdict"] for line in run.stdout.splitlines()] == ([verdict] if verdict else [])


def test_the_tests_of_the_template_pass() -> None:
    assert passed(GUEST, "--rootdir", str(GUEST), "tests") == 2
