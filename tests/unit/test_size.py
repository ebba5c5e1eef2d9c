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


CORE = """from pydantic_settings import BaseSettings


class Base(BaseSettings):
    pass


class Settings(Base):
    home: str = ""
    port: int = 1
"""
PLUGIN = """from pipeline.three import Base


class TapeSettings(Base):
    drives: int = 2
"""


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    root: Path = tmp_path_factory.mktemp("checkout")
    (root / "pipeline").mkdir()
    (root / "pipeline" / "one.py").write_text(ONE)
    (root / "pipeline" / "two.py").write_text(TWO)
    (root / "pipeline" / "three.py").write_text(CORE)
    (root / "plugins").mkdir()
    (root / "plugins" / "tape.py").write_text(PLUGIN)
    return size.counts(size.read(root))


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("files", 4),
        ("lines", 44),
        ("code", 23),
        ("functions", 2),
        ("errors", 2),
        ("lazy imports", 2),
        ("renaming imports", 1),
        ("private names", 3),
        ("settings", 2),
        ("settings of plugins", 1),
        ("circles of files", ["pipeline/one.py pipeline/two.py"]),
    ],
)
def test_a_figure_follows_its_rule(figure: str, value: object, counted: dict[str, object]) -> None:
    assert counted[figure] == value
