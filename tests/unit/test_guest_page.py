"""The page on guests shows the template as it is, and a program that works as the page says."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.conforming import passed
from tests.support.guest_page import PAGE, PROGRAM, TEMPLATE, shown_files


def test_the_page_shows_the_files_of_the_template() -> None:
    files = shown_files()

    assert len(files) == PAGE.count("```python") + PAGE.count("```sh") + PAGE.count("```toml")
    assert files == {name: (TEMPLATE / name).read_text() for name in files}


@pytest.mark.parametrize(
    ("text", "code", "verdict"), [("Name: a ferry\n", 0, None), ("a ferry\n", 1, "found"), ("", 1, "found")]
)
def test_the_program_of_the_page_says_its_verdict_by_exit_code_and_json(
    tmp_path: Path, text: str, code: int, verdict: str | None
) -> None:
    (tmp_path / "file").write_text(text)

    run = subprocess.run([TEMPLATE / PROGRAM, tmp_path / "file"], capture_output=True, text=True, check=False)

    assert run.returncode == code
    assert [json.loads(line)["verdict"] for line in run.stdout.splitlines()] == ([verdict] if verdict else [])


def test_the_tests_of_the_template_pass() -> None:
    assert passed(TEMPLATE, "--rootdir", str(TEMPLATE), "tests") == 2
