"""The meanings of fields: the docstrings after them, which the OpenAPI document and docs/api/json.md show.

Read for the document alone: pydantic's `use_attribute_docstrings` parses the sources when classes are made.
"""

import ast
import dataclasses
import inspect
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

from pipeline.packed import Packed

_OURS = frozenset({"entrypoints", "operations", "pipeline", "plugins", "tools", "zkstate"})


def with_meanings(document: dict[str, Any], kinds: Iterable[object]) -> dict[str, Any]:
    """Describe the fields of the records in these types in the OpenAPI document; idempotent."""
    schemas = document["components"]["schemas"]
    for cls in records(kinds):
        name, described = re.sub(r"\W", "_", cls.__name__), meanings(cls)
        for schema in (name, f"{name}-Input", f"{name}-Output"):
            for field, facts in schemas.get(schema, {}).get("properties", {}).items():
                if field in described:
                    facts.setdefault("description", described[field])
    return document


def records(kinds: Iterable[object]) -> tuple[type, ...]:
    """Every record in these types, and in the fields of those records."""
    waiting, classes = list(records_in(kinds)), dict[type, None]()
    while waiting:
        if (cls := waiting.pop()) not in classes:
            classes[cls] = None
            waiting += records_in(get_type_hints(cls).values())
    return tuple(classes)


def records_in(kinds: Iterable[object]) -> Iterator[type]:
    """The records that these types name, without the records in their fields."""
    for kind in kinds:
        if inspect.isclass(kind) and issubclass(kind, Packed):
            yield from records_in(_bases(kind))
        elif inspect.isclass(kind) and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)):
            yield kind
        yield from records_in(get_args(kind))


def _bases(kind: type) -> tuple[object, ...]:
    """The bases with their type arguments; `types` has a function for this since Python 3.12."""
    return tuple(kind.__dict__.get("__orig_bases__", ()))


def meanings(cls: type) -> dict[str, str]:
    """Field -> its meaning, of this class and of its bases."""
    inherited = [
        _meanings_in(base.__module__).get(base.__name__, {})  # a parametrized generic record has no entry
        for base in reversed(cls.__mro__)
        if base.__module__.partition(".")[0] in _OURS
    ]
    return {field: text for described in inherited for field, text in described.items()}


@cache
def _meanings_in(module: str) -> dict[str, dict[str, str]]:
    """Class of the module -> its fields with a docstring."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: dict(_described(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _described(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement, following in itertools.pairwise(node.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
            case _:
                pass
