"""A code has one row in `pipeline.codes`, and is given where an error is raised."""

import ast
from functools import cache
from pathlib import Path

import pytest

from pipeline import codes
from pipeline.codes import CODES, Code, ErrorKind
from pipeline.errors import ArklineError, ServiceUnreachable, UsageRefused

PROJECT = Path(__file__).parents[2]
PACKAGES = ("pipeline", "zkstate", "tasks", "operations", "entrypoints", "plugins")


@cache
def trees() -> list[ast.Module]:
    """The programs that give codes."""
    return [
        ast.parse(path.read_text())
        for package in PACKAGES
        for path in (PROJECT / package).rglob("*.py")
        if path != PROJECT / "pipeline" / "codes.py"
    ]


def test_a_row_has_its_code_for_a_name_and_no_code_has_two_rows() -> None:
    rows = {name: row.name for name, row in vars(codes).items() if isinstance(row, Code)}

    assert rows == {name.upper().replace("-", "_"): name for name in CODES}


def test_every_code_is_given_somewhere() -> None:
    given = {
        node.attr
        for tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "codes"
    }

    assert {name.upper().replace("-", "_") for name in CODES} - given == set()


def codes_given_to(error: type[ArklineError]) -> set[Code]:
    return {
        getattr(codes, keyword.value.attr)
        for tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == error.__name__
        for keyword in node.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Attribute)
    }


@pytest.mark.parametrize("error", [UsageRefused, ServiceUnreachable])
def test_a_code_agrees_with_the_type_whose_error_it_names(error: type[ArklineError]) -> None:
    assert {code.kind for code in codes_given_to(error)} <= {error.code.kind}


def test_an_error_has_the_code_of_its_type_unless_it_is_given_a_more_precise_one() -> None:
    assert UsageRefused("no").code is codes.USAGE_REFUSED
    assert UsageRefused("no", code=codes.KEY_REUSED).code is codes.KEY_REUSED
    assert ArklineError("no", code=codes.RECORD_FULL).error_kind is ErrorKind.UNREACHABLE
