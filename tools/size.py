"""The size and shape of the production code: `python -m tools.size [CHECKOUT]`, by reading alone.

lines: all lines of the `.py` files of the packages
code: lines with a token that is neither a comment nor part of a docstring
core: without `plugins` and `zkstate/direct`
functions, classes: definitions, inner ones too; a function's length has its docstring, not its decorators
lazy imports: import statements inside functions
renaming imports: `import a as b` and `from a import b as c` with another name
private names: with one leading underscore, read as attribute or imported, and written nowhere in the tree
errors: classes that derive from one whose name ends as that of an error, or from an error of the tree
settings, of plugins apart: annotated fields of the classes that derive from BaseSettings, and of their mixins
circles: groups of files, or of folders of a package, that import one another; imports for types count
"""

import ast
import io
import json
import statistics
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("pipeline", "zkstate", "tasks", "operations", "entrypoints", "plugins")
APART = ("plugins/", "zkstate/direct/")
FOLDER_LIMIT = 25
"""Maximum number of files directly in a folder."""
SPLINTER = 60
"""A file with fewer lines counts as small."""
LONG = 50
"""A function with more lines counts as long."""

DOCUMENTED = frozenset({"_exit", "_make", "_replace", "_asdict", "_fields"})
"""Standard library names that are public despite the underscore: of `os` and of named tuples."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Graph = Mapping[str, set[str]]


@dataclass(frozen=True)
class Source:
    path: str
    """Relative to the checkout."""
    lines: int
    code: int
    tree: ast.Module


def read(root: Path) -> list[Source]:
    paths = sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return [_source(root, path) for path in paths]


def _source(root: Path, path: Path) -> Source:
    text = path.read_text()
    tree = ast.parse(text)
    return Source(str(path.relative_to(root)), len(text.splitlines()), len(_code(text, tree)), tree)


def _code(text: str, tree: ast.Module) -> set[int]:
    """The numbers of the lines that contain code."""
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    layout |= {tokenize.ENDMARKER, tokenize.ENCODING}
    numbers: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            numbers.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        # a string as a statement of its own is a docstring, whatever precedes it
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            numbers.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return numbers


def counts(sources: list[Source]) -> dict[str, Any]:
    nodes = [(source, node) for source in sources for node in ast.walk(source.tree)]
    lengths = sorted(
        (node.end_lineno or 0) - node.lineno + 1 for _, node in nodes if isinstance(node, Function)
    )
    lines = sum(source.lines for source in sources)
    excepts = sum(isinstance(node, ast.ExceptHandler) for _, node in nodes)
    core = [source for source in sources if not source.path.startswith(APART)]
    folders: dict[str, int] = defaultdict(int)
    for source in sources:
        folders[source.path.rpartition("/")[0]] += 1
    importers = defaultdict(set)
    for importer, imported in imports(sources).items():
        for path in imported:
            importers[path].add(importer)
    one = [source for source in sources if len(importers[source.path]) == 1]
    return {
        "files": len(sources),
        "lines": lines,
        "code": sum(source.code for source in sources),
        "core files": len(core),
        "core lines": sum(source.lines for source in core),
        "functions": len(lengths),
        "median of a function": statistics.median(lengths),
        "p90 of a function": lengths[int(0.9 * len(lengths))],
        f"functions of more than {LONG} lines": sum(length > LONG for length in lengths),
        "classes": sum(isinstance(node, ast.ClassDef) for _, node in nodes),
        "errors": len(errors(sources)),
        "settings": len(settings(sources, plugins=False)),
        "settings of plugins": len(settings(sources, plugins=True)),
        "lazy imports": sum(map(_lazy, (source.tree for source in sources))),
        "renaming imports": sum(_renames(node) for _, node in nodes),
        "except arms for 1,000 lines": round(1000 * excepts / lines, 1),
        "private names": len({name for _, name in private_names(sources)}),
        "files with one importer": len(one),
        f"files of less than {SPLINTER} lines": sum(source.lines < SPLINTER for source in sources),
        "longest file": max(source.lines for source in sources),
        f"folders of more than {FOLDER_LIMIT} files": sorted(
            f"{folder} {number}" for folder, number in folders.items() if number > FOLDER_LIMIT
        ),
        "circles of files": [" ".join(circle) for circle in circles(imports(sources))],
        "circles of folders": [" ".join(circle) for circle in folder_circles(sources)],
        "packages": {
            package: f"{len(own)} files, {sum(source.lines for source in own)} lines"
            for package in PACKAGES
            if (own := [source for source in sources if source.path.startswith(f"{package}/")])
        },
    }


def _lazy(tree: ast.Module) -> int:
    inside = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, Function)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    }
    return len(inside)


def _renames(node: ast.AST) -> int:
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return 0
    return sum(alias.asname not in (None, alias.name) for alias in node.names)


def errors(sources: Iterable[Source]) -> set[str]:
    words = ("Error", "Exception", "Refused", "Failed", "Fault")
    return _descendants(sources, lambda base: base.endswith(words))


def settings(sources: Sequence[Source], *, plugins: bool) -> set[str]:
    """The settings of the plugins, or of the core."""
    classes = {
        node.name: (source, node)
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    }
    kinds = _descendants(sources, lambda base: base == "BaseSettings")
    kinds |= {base for kind in kinds for base in _bases(classes[kind][1]) if base in classes}
    return {
        field.target.id
        for source, node in map(classes.__getitem__, kinds)
        if source.path.startswith("plugins/") is plugins
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and field.target.id[0] != "_"
    }


def _classes(sources: Iterable[Source]) -> list[ast.ClassDef]:
    return [node for source in sources for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]


def _bases(node: ast.ClassDef) -> list[str]:
    return [name for base in node.bases if (name := _last(base))]


def _last(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _descendants(sources: Iterable[Source], is_root: Any) -> set[str]:
    kinds: set[str] = set()
    classes = _classes(sources)
    while new := {
        node.name
        for node in classes
        if node.name not in kinds and any(is_root(base) or base in kinds for base in _bases(node))
    }:
        kinds |= new
    return kinds


def private_names(sources: Iterable[Source]) -> list[tuple[str, str]]:
    """Pairs of file and name."""
    used: list[tuple[str, str]] = []
    own: set[str] = set()
    for source in sources:
        for node in ast.walk(source.tree):
            match node:
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    used.append((source.path, name))
                case ast.ImportFrom(module=str(module), names=names) if not module.startswith(PACKAGES):
                    used += [(source.path, part) for part in module.split(".")]
                    used += [(source.path, alias.name) for alias in names]
                case ast.Attribute(attr=name) | ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    own.add(name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    own.add(name)
                case _:
                    pass
    return sorted(
        {pair for pair in used if pair[1][:1] == "_" != pair[1][1:2] and pair[1] not in own | DOCUMENTED}
    )


def imports(sources: Iterable[Source]) -> Graph:
    """File -> the files of the tree that it imports."""
    paths = {source.path for source in sources}
    graph: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for node in ast.walk(source.tree):
            for module in _modules(node):
                stem = module.replace(".", "/")
                graph[source.path] |= {f"{stem}.py", f"{stem}/__init__.py"} & paths - {source.path}
    return graph


def _modules(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def folder_circles(sources: Iterable[Source]) -> list[list[str]]:
    """The cyclic groups among a package's folders and the files beside them."""
    graph: dict[str, set[str]] = defaultdict(set)
    for path, imported in imports(sources).items():
        for other in imported:
            if not other.endswith("__init__.py") and path.split("/")[0] == other.split("/")[0]:
                graph[_room(path)] |= {_room(other)} - {_room(path)}
    return [circle for circle in circles(graph) if any(not room.endswith(".py") for room in circle)]


def _room(path: str) -> str:
    parts = path.split("/")
    return "/".join(parts[:2])


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components with more than one node."""
    reached = {node: _reach(graph, node) for node in graph}
    groups = {
        tuple(sorted(other for other in reached[node] if node in reached.get(other, ()))) for node in graph
    }
    return sorted(list(group) for group in groups if len(group) > 1)


def _reach(graph: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for other in graph.get(waiting.pop(), ()):
            if other not in reached:
                reached.add(other)
                waiting.append(other)
    return reached


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    sources = read(root)
    print(json.dumps(counts(sources) | {"private": private_names(sources)}, indent=1))


if __name__ == "__main__":
    main()
