"""What a program prints besides its exit code."""

import hashlib
import sys
from pathlib import Path

import pytest

from pipeline.checks import CheckedFile, CheckVerdict
from plugins.command.check import CommandCheck, CommandSettings
from plugins.conformance.test_check import Context

ECHO = "import pathlib, sys; print(pathlib.Path(sys.argv[1]).read_text()); sys.exit(1)"
"""A program that prints what is in the file and finds a fault in it."""


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[1]", '{"verdict": "clean"}', '{"code": "\\ud800"}', "1" * 5000]
)
def test_what_a_file_has_a_program_print_does_not_change_the_verdict(tmp_path: Path, text: str) -> None:
    source = tmp_path / "a"
    source.write_text(text)
    file = CheckedFile("a", source, len(text), hashlib.sha512(text.encode()).hexdigest())
    check = CommandCheck(CommandSettings(command=(sys.executable, "-c", ECHO)))

    assert [finding.verdict for finding in check.run([file], Context())] == [CheckVerdict.FOUND]
