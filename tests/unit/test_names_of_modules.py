"""A module, and what it has, is called by its own name."""

import ast
from pathlib import Path

PROJECT = Path(__file__).parents[2]
AREAS = ("pipeline", "zkstate", "tasks", "operations", "entrypoints", "plugins", "tools", "benchmarks")

RENAMED = {"entrypoints": 4}
"""Area -> imports that still rename what they import (`import x as y`). The numbers only fall."""


def renaming_imports(area: str) -> list[str]:
    return [
        f"{path.relative_to(PROJECT)}:{node.lineno}: {name.name} as {name.asname}"
        for path in sorted((PROJECT / area).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
        if name.asname not in (None, name.name)
    ]


def test_no_import_renames_what_it_imports() -> None:
    imports = {area: renaming_imports(area) for area in AREAS}

    more = {area: names for area, names in imports.items() if len(names) > RENAMED.get(area, 0)}
    assert not more, more
