"""The figures of the production code's size follow their rules."""

from pathlib import Path

import pytest

from tools import size

ONE = '''"""A docstring

of three lines."""

import json as renamed
from kazoo._hidden import _name

from pipeline.two import Two


class Broken(ValueError):
    """Its docstring."""


class Worse(Broken):
    pass


def read() -> str:
    # a comment
    from pipeline import two

    return Two()._own + two.other._foreign + renamed.dumps("""a
text""")
'''
TWO = """class Two:
    _own = ""

    def see(self) -> None:
        from pipeline.one import read
"""


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    root: Path = tmp_path_factory.mktemp("checkout")
    (root / "pipeline").mkdir()
    (root / "pipeline" / "one.py").write_text(ONE)
    (root / "pipeline" / "two.py").write_text(TWO)
    return size.counts(size.read(root))


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("files", 2),
        ("lines", 29),
        ("code", 14),
        ("functions", 2),
        ("errors", 2),
        ("lazy imports", 2),
        ("renaming imports", 1),
        ("private names", 3),
        ("circles of files", ["pipeline/one.py pipeline/two.py"]),
    ],
)
def test_a_figure_follows_its_rule(figure: str, value: object, counted: dict[str, object]) -> None:
    assert counted[figure] == value
