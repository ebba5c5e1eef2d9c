"""The direct connection stands aside where it cannot work, and it alone relies on private names of kazoo."""

import ast
from importlib import import_module
from pathlib import Path
from types import FunctionType

import kazoo
import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from zkstate.direct import Client, DirectHandler, StockHandler

PROJECT = Path(__file__).parent.parent.parent
PACKAGES = ("pipeline", "zkstate", "tasks", "operations", "entrypoints", "plugins")


@pytest.mark.parametrize("handler", [StockHandler, SequentialThreadingHandler])
def test_a_client_with_a_handler_of_kazoo_has_the_connection_of_kazoo(handler: type) -> None:
    assert not Client(handler=handler()).is_direct
    assert Client(handler=DirectHandler()).is_direct
    assert Client().is_direct


@pytest.mark.parametrize("version", ["2.10.0", "2.12.0", "3.0"])
def test_a_release_of_kazoo_that_is_not_known_has_the_connection_of_kazoo(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kazoo, "__version__", version)

    assert not Client().is_direct


ELSEWHERE = {
    "tasks/transport.py: Channel._brpop_read",
    "tasks/transport.py: Mailbox._collect",
    "tasks/transport.py: Transport._deliver",
}
"""Private names of third parties outside `zkstate/direct`: none may be added."""

DOCUMENTED = {"_exit", "_make", "_replace", "_asdict"}
"""Public names of `os` and of named tuples."""


def _modules() -> list[Path]:
    return sorted(path for name in PACKAGES for path in (PROJECT / name).rglob("*.py"))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_") and not name.startswith("__")


def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def _bound(node: ast.AST) -> str:
    """The name that a node of ours gives to something of ours."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case (
            ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store())
        ):
            return name
        case _:
            return ""


def _used(node: ast.AST, own: set[str]) -> str:
    """A private name that a node takes from elsewhere."""
    match node:
        case ast.Attribute(value=value, attr=name) if _is_private(name) and name not in DOCUMENTED:
            return name if name not in own or ast.unparse(value).endswith("zk") else ""
        case ast.ImportFrom(names=names, module=module):
            parts = (*(alias.name for alias in names), *(module or "").split("."))
            return next(filter(_is_private, parts), "")
        case _:
            return ""


def _overridden(path: Path, nodes: list[ast.AST]) -> list[str]:
    """Private functions of a class that take the place of a third party's."""
    if not any(isinstance(node, ast.ClassDef) and node.bases and _has_private(node) for node in nodes):
        return []
    name = ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")
    classes = [each for each in vars(import_module(name)).values() if isinstance(each, type)]
    return [
        f"{path.relative_to(PROJECT)}: {own.__name__}.{member}"
        for own in classes
        if own.__module__ == name
        for member, value in vars(own).items()
        if _is_private(member) and isinstance(value, FunctionType) and _is_of_others(own, member)
    ]


def _has_private(kind: ast.ClassDef) -> bool:
    return any(isinstance(node, ast.FunctionDef) and _is_private(node.name) for node in kind.body)


def _is_of_others(kind: type, member: str) -> bool:
    bases = [base for base in kind.__mro__ if member in vars(base)]
    return any(base.__module__.split(".")[0] not in PACKAGES for base in bases)


def test_private_names_of_third_parties_are_used_by_the_direct_connection_alone() -> None:
    others = [path for path in _modules() if PROJECT / "zkstate/direct" not in path.parents]
    nodes = {path: _nodes(path) for path in others}
    own = {_bound(node) for path in others for node in nodes[path]}
    used = {
        f"{path.relative_to(PROJECT)}: {name}"
        for path in others
        for node in nodes[path]
        if (name := _used(node, own))
    }
    overridden = {name for path in others for name in _overridden(path, nodes[path])}

    assert used | overridden <= ELSEWHERE
